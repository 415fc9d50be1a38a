//! Patterns of visibility from the sets of their papers, one pair of positions at a time.

use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
use heedful_attention::mechanisms::local_2d::LocalTwoDConfig;
use heedful_attention::mechanisms::sliding_window::SlidingWindowConfig;
use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
use heedful_attention::mechanisms::sparse_strided::SparseStridedConfig;
use heedful_attention::pattern::Integration;
use heedful_attention::placement::Placement;
use heedful_attention::registry::{AnyMechanism, Card, Kind};

/// Whether head `h` may see position `j` from position `i`: what a pattern and those below it show.
pub fn shows(config: &AnyMechanism, placement: &Placement, h: usize, i: usize, j: usize) -> bool {
    // Which of two factors a head has, and how many heads with the second one come before it.
    let factors = |integration| match integration {
        Integration::Interleaved => (placement.layer.is_multiple_of(2), !placement.layer.is_multiple_of(2), h),
        Integration::Merged => (true, true, h),
        Integration::Heads => (h.is_multiple_of(2), h % 2 == 1 || h + 1 == placement.heads, h / 2),
    };
    let own = by_type!(config;
        // Jiang et al. 2023: the last `window` positions.
        config in SlidingWindowConfig => i.abs_diff(j) < config.window,
        // Parmar et al. 2018: the block, and l_m positions to either side.
        config in LocalOneDConfig => {
            let beside = config.memory_block.unwrap_or(config.query_block);
            let block: Vec<usize> = (0..=i + config.query_block).filter(|p| p / config.query_block == i / config.query_block).collect();
            block.iter().any(|p| p.abs_diff(j) <= beside)
        },
        config in LocalTwoDConfig => {
            let block_of = |p| {
                let ([row, column], [height, width]) = (cell(config, p), config.query_block);
                [row / height, column / width]
            };
            let [row, column] = cell(config, j);
            let area = config.query_block[0] * config.width;
            let block = (0..(i / area + 1) * area).filter(|&p| block_of(p) == block_of(i)).map(|p| cell(config, p));
            // Near one element of the block in both directions: the block is a rectangle.
            block.into_iter().any(|[r, c]| r.abs_diff(row) <= config.memory[0] && c.abs_diff(column) <= config.memory[1])
        },
        // Child et al. 2019.
        config in SparseStridedConfig => {
            let (near, column, _) = factors(config.integration);
            (near && i.abs_diff(j) <= config.stride) || (column && i % config.stride == j % config.stride)
        },
        config in SparseFixedConfig => {
            let (block, summaries, order) = factors(config.integration);
            let (l, c) = (config.stride, config.summary);
            let heads = if config.integration == Integration::Heads { placement.heads.div_ceil(2) } else { placement.heads };
            let different = if config.separate_summaries { heads.min(l / c) } else { 1 };
            let last = l - (order % different) * c;
            (block && i / l == j / l) || (summaries && (i == j || (last - c..last).contains(&(j % l))))
        };
        else => match config.inner() {
            // A normaliser hides nothing itself.
            Some(inner) => return shows(inner, placement, h, i, j),
            None => return true,
        }
    );
    own && config.inner().is_none_or(|inner| shows(inner, placement, h, i, j))
}

/// Row and column of the `p`-th element that is generated, found by generating.
pub fn cell(config: &LocalTwoDConfig, p: usize) -> [usize; 2] {
    let [height, width] = config.query_block;
    let mut generated = 0;
    for block_row in 0.. {
        for block_column in 0..config.width / width {
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
                if generated == p {
                    return [block_row * height + row, block_column * width + column];
                }
                generated += 1;
            }
        }
    }
    unreachable!("the rows of an image do not end here")
}

/// Where the parameters of what a pattern or a normaliser is over are found.
pub fn inner_path(config: &AnyMechanism, path: &str) -> String {
    let Card { kind, variant, .. } = config.card();
    if kind == Kind::Normaliser { path.to_owned() } else { format!("{path}.{variant}.logits.0") }
}
