//! The colours of weights: viridis (Smith and van der Walt 2015), whose brightness grows evenly, also for readers who do not tell red from green.

/// Viridis at nine equally spaced values; between them it is nearly linear.
const ANCHORS: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// What is not visible.
pub(super) const HIDDEN: [u8; 3] = [228, 228, 228];

/// The colour of a value from 0 to 1; values outside have that of the nearer end.
pub(super) fn viridis(value: f64) -> [u8; 3] {
    let steps = ANCHORS.len() - 1;
    let at = value.clamp(0.0, 1.0) * steps as f64;
    let below = (at as usize).min(steps - 1);
    let part = at - below as f64;
    std::array::from_fn(|channel| {
        let [from, to] = [below, below + 1].map(|anchor| f64::from(ANCHORS[anchor][channel]));
        (from + (to - from) * part).round() as u8
    })
}

/// `#rrggbb`.
pub(super) fn hexadecimal(colour: [u8; 3]) -> String {
    format!("#{}", hex::encode(colour))
}

/// The colours of the colour bar, from the least value to the greatest.
pub(super) fn stops() -> Vec<String> {
    ANCHORS.map(hexadecimal).to_vec()
}

/// Black or white, whichever is legible on a colour.
pub(super) fn ink_on([red, green, blue]: [u8; 3]) -> &'static str {
    let brightness = 0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue);
    if brightness > 130.0 { "#000000" } else { "#ffffff" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_run_from_dark_to_bright() {
        assert_eq!([viridis(0.0), viridis(1.0), viridis(0.5)], [[68, 1, 84], [253, 231, 37], [33, 144, 141]]);
        assert_eq!([viridis(-1.0), viridis(2.0)], [[68, 1, 84], [253, 231, 37]]);
        assert_eq!(viridis(0.0625), [70, 23, 103]);
        let brightness = |step: u32| {
            viridis(f64::from(step) / 100.0).iter().zip([0.299, 0.587, 0.114]).map(|(&part, share)| f64::from(part) * share).sum()
        };
        let values: Vec<f64> = (0..=100).map(brightness).collect();
        assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "{values:?}");
    }

    #[test]
    fn ink_stands_out_from_its_ground() {
        assert_eq!([ink_on(viridis(0.0)), ink_on(viridis(1.0))], ["#ffffff", "#000000"]);
        assert_eq!(hexadecimal([1, 171, 255]), "#01abff");
    }
}
