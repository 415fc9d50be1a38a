//! Matching of new attention parameters with old ones.

use super::report::{Dropped, Kept, New, Reason, SwapReport};

/// Modules with the same meaning in every mechanism: shared projections, and the norms of queries and keys.
const SHARED: [&str; 6] = ["query", "key", "value", "output", "query_norm", "key_norm"];

/// A parameter by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
}

/// Path suffix that identifies a parameter: for a shared module its name and field, otherwise the mechanism's name, which begins with a capital, and the rest.
fn end(name: &str) -> &str {
    let from = |dots: usize| name.rmatch_indices('.').nth(dots).map_or(0, |(dot, _)| dot + 1);
    let of_module = &name[from(1)..];
    if of_module.split('.').next().is_some_and(|module| SHARED.contains(&module)) {
        return of_module;
    }
    let mut starts = std::iter::once(0).chain(name.match_indices('.').map(|(dot, _)| dot + 1));
    let of_mechanism = starts.rfind(|&start| name[start..].starts_with(|first: char| first.is_ascii_uppercase()));
    &name[of_mechanism.unwrap_or(0)..]
}

/// Number of equal parts at the end of two paths.
fn likeness(one: &str, other: &str) -> usize {
    one.rsplit('.').zip(other.rsplit('.')).take_while(|(one, other)| one == other).count()
}

/// Most similar parameters among those that match `name`: one, or several on a tie.
fn nearest<'a>(name: &str, among: &'a [Named]) -> Vec<&'a Named> {
    let same: Vec<_> = among.iter().filter(|other| end(&other.name) == end(name)).collect();
    let most = same.iter().map(|other| likeness(name, &other.name)).max();
    same.into_iter().filter(|other| Some(likeness(name, &other.name)) == most).collect()
}

/// Reports which old parameters of an attention are kept or dropped, and which new ones are initial. A mixture may have several places for a weight, or several
/// weights for a place; then the paths with the greatest similarity match.
pub(super) fn matched(old: &[Named], new: &[Named], report: &mut SwapReport) {
    for Named { name, shape } in old {
        let dropped = |why: Reason| Dropped { name: name.clone(), shape: shape.clone(), why };
        match nearest(name, new)[..] {
            [] => report.dropped.push(dropped(Reason::NoPlace)),
            [place] if nearest(&place.name, old).iter().any(|rival| rival.name != *name) => {
                report.dropped.push(dropped(Reason::Contested { place: place.name.clone() }));
            }
            [place] if place.shape != *shape => {
                report.dropped.push(dropped(Reason::OtherShape { place: place.name.clone(), shape: place.shape.clone() }));
            }
            [place] => report.kept.push(Kept { name: place.name.clone(), before: name.clone(), shape: shape.clone() }),
            ref several => {
                let places = several.iter().map(|place| place.name.clone()).collect();
                report.dropped.push(dropped(Reason::SeveralPlaces { places }));
            }
        }
    }
    for Named { name, shape } in new {
        if report.kept.iter().all(|kept| kept.name != *name) {
            let was = report.dropped.iter().find_map(|dropped| match &dropped.why {
                Reason::OtherShape { place, .. } if place == name => Some(dropped.shape.clone()),
                _ => None,
            });
            report.new.push(New { name: name.clone(), shape: shape.clone(), was });
        }
    }
}

/// Reports that no old parameter of an attention is kept and all new ones are initial.
pub(super) fn reinitialised(old: &[Named], new: &[Named], report: &mut SwapReport) {
    let dropped = |Named { name, shape }: &Named| Dropped { name: name.clone(), shape: shape.clone(), why: Reason::Reinitialised };
    report.dropped.extend(old.iter().map(dropped));
    report.new.extend(new.iter().map(|Named { name, shape }| New { name: name.clone(), shape: shape.clone(), was: None }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(list: &[(&str, &[usize])]) -> Vec<Named> {
        list.iter().map(|(name, shape)| Named { name: (*name).to_owned(), shape: shape.to_vec() }).collect()
    }

    fn report(old: &[(&str, &[usize])], new: &[(&str, &[usize])]) -> SwapReport {
        let mut report = SwapReport::default();
        matched(&named(old), &named(new), &mut report);
        report
    }

    #[test]
    fn the_end_of_a_path_says_what_a_parameter_is() {
        for (name, expected) in [
            ("a.Softmax.logits.DotProduct.query.weight", "query.weight"),
            ("a.Softmax.value.bias", "value.bias"),
            ("a.Softmax.logits.Rotary.key_norm.gamma", "key_norm.gamma"),
            ("a.Softmax.logits.SynthesizerRandom.table", "SynthesizerRandom.table"),
            ("a.Softmax.logits.Mixture.members.1.SynthesizerRandom.table", "SynthesizerRandom.table"),
            ("a.GatedDeltaNet.mixer.convolution.weight", "GatedDeltaNet.mixer.convolution.weight"),
            ("a.Softmax.sink", "Softmax.sink"),
            ("query", "query"),
        ] {
            assert_eq!(end(name), expected);
        }
    }

    #[test]
    fn a_weight_goes_to_the_place_that_is_most_alike() {
        let mixture = [("M.0.DotProduct.query.weight", &[2, 2][..]), ("M.1.Relative.query.weight", &[2, 2])];
        let kept = |report: SwapReport| report.kept.into_iter().map(|kept| (kept.before, kept.name)).collect::<Vec<_>>();
        let into = report(&[("S.DotProduct.query.weight", &[2, 2])], &mixture);
        assert_eq!(kept(into), [("S.DotProduct.query.weight".to_owned(), "M.0.DotProduct.query.weight".to_owned())]);
        // Of several, the most similar takes the place.
        let out = report(&mixture, &[("S.Relative.query.weight", &[2, 2])]);
        assert_eq!(out.dropped[0].why, Reason::Contested { place: "S.Relative.query.weight".to_owned() });
        assert_eq!(kept(out), [("M.1.Relative.query.weight".to_owned(), "S.Relative.query.weight".to_owned())]);
    }

    #[test]
    fn what_has_several_places_or_another_shape_is_dropped_and_said_so() {
        let twice = report(&[("S.query.weight", &[2, 2])], &[("S.first.query.weight", &[2, 1]), ("S.second.query.weight", &[2, 1])]);
        assert!(matches!(&twice.dropped[0].why, Reason::SeveralPlaces { places } if places.len() == 2), "{twice:?}");
        assert_eq!((twice.kept.len(), twice.new.len()), (0, 2));
        let narrow = report(&[("S.key.weight", &[4, 4])], &[("Gla.mixer.key.weight", &[4, 2])]);
        assert_eq!(narrow.dropped[0].why, Reason::OtherShape { place: "Gla.mixer.key.weight".to_owned(), shape: vec![4, 2] });
        assert_eq!((narrow.new[0].shape.clone(), narrow.new[0].was.clone()), (vec![4, 2], Some(vec![4, 4])));
    }
}
