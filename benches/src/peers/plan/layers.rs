//! Comparisons of single layers.

use heedful_attention::prelude::*;
use heedful_host::exit::ProgramError;
use serde_json::{Value, json};

use super::{Candidate, DENSE, Layers, PROJECTIONS, PYTORCH_SDPA, Plan, check_multiple};
use crate::peers::options::{AttentionOptions, DropoutOptions, MechanismsOptions, PositionsOptions};
use crate::peers::side::Maker;
use crate::workload::Sizes;

/// How many matrices of 32-bit numbers over all pairs of positions a backward pass by the formula holds at once, roughly.
const MATRICES: f64 = 6.0;
/// The same of PyTorch's scaled_dot_product_attention with dropout.
const MATRICES_WITH_DROPOUT: f64 = 4.0;

/// Memory of so many matrices of all pairs.
fn gibibytes(matrices: f64, Sizes { batch, heads, length, .. }: Sizes) -> f64 {
    [4, batch, heads, length, length].iter().fold(matrices, |bytes, &size| bytes * size as f64) / f64::from(1 << 30)
}

impl AttentionOptions {
    /// Forward and backward of a layer, fused and by its formula, on both sides.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let sizes = self.layer.sizes((self.tokens / length).max(1), length)?;
            let layers = Layers { sizes, training: true };
            let dot_product = json!({ "name": "dot-product" });
            let mut candidates = vec![
                layers.ours("fused", &dot_product, Engine::Fused).against(PYTORCH_SDPA).less("heedful, 4 projections"),
                layers.theirs(PYTORCH_SDPA, json!({ "name": "sdpa" })).less("PyTorch, 4 projections"),
                layers.ours("reference", &dot_product, Engine::Reference).against(PYTORCH_SDPA),
                layers.theirs("PyTorch naive", json!({ "name": "naive" })).against(PYTORCH_SDPA),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Peer, 4),
            ];
            let gibibytes = gibibytes(MATRICES, sizes);
            if gibibytes > self.matrices {
                let reason = format!("left out: about {gibibytes:.0} GiB of matrices");
                candidates.iter_mut().skip(2).take(2).for_each(|candidate| candidate.left_out = Some(reason.clone()));
            }
            Ok(sizes.case(candidates))
        };
        Ok(Plan {
            what: "attention",
            title: "Causal attention, forward and backward",
            about: format!(
                "A multi-head layer of width {} with {} heads, projections included: forward, and backward to the input and all weights. PyTorch has one product \
                 for queries, keys and values. {PROJECTIONS}",
                self.layer.d_model, self.layer.heads,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl MechanismsOptions {
    /// Blocks, summaries and chunks of the mechanisms.
    pub(super) const WINDOW: usize = 128;
    const STRIDE: usize = 128;
    pub(super) const CHUNK: usize = 64;
    pub(super) const ROUNDS: usize = 4;

    /// Forward and backward of each mechanism.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            check_multiple(length, 2 * MechanismsOptions::CHUNK)?;
            let sizes = self.layer.sizes(1, length)?;
            let layers = Layers { sizes, training: true };
            let (four, three) = ("heedful, 4 projections", "heedful, 3 projections");
            let ours = |config: Value| {
                let name = config["name"].as_str().unwrap_or_default();
                layers.ours(name, &config, Engine::Fused).against(DENSE).less(if name == "lsh" { three } else { four })
            };
            Ok(sizes.case(vec![
                ours(json!({ "name": "dot-product" })),
                ours(json!({ "name": "local-1d", "query_block": Self::WINDOW })),
                ours(json!({ "name": "sparse-strided", "stride": Self::STRIDE })),
                ours(json!({ "name": "sparse-fixed", "stride": Self::STRIDE })),
                ours(json!({ "name": "lsh", "chunk": Self::CHUNK, "rounds": Self::ROUNDS })),
                layers.theirs("local-attention", json!({ "name": "local-attention", "window": Self::WINDOW })).against("heedful local-1d"),
                layers
                    .theirs("reformer-pytorch", json!({ "name": "reformer-pytorch", "bucket": Self::CHUNK, "rounds": Self::ROUNDS }))
                    .against("heedful lsh"),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Heedful, 3),
            ]))
        };
        Ok(Plan {
            what: "mechanisms",
            title: "Sub-quadratic mechanisms, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1: `local-1d` with blocks of {} (a query sees its block and the one \
                 before, as in local-attention), `sparse-strided` and `sparse-fixed` with l = {}, `lsh` with chunks of {} and {} rounds. Ours are compared \
                 with our dense attention, the packages with what they have in common with us. {PROJECTIONS}",
                self.layer.d_model,
                self.layer.heads,
                Self::WINDOW,
                Self::STRIDE,
                Self::CHUNK,
                Self::ROUNDS,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl PositionsOptions {
    /// Blocks of `local-1d`, and how far back fixed spans reach.
    const BLOCK: usize = 128;
    /// An image in which a query of `local-2d` sees as many keys as one of `local-1d`, but for those near the beginning.
    const WIDTH: usize = 64;
    const BLOCK_2D: [usize; 2] = [4, 32];
    const MEMORY_2D: [usize; 2] = [2, 16];

    /// The stride with which `sparse-strided` sees most nearly as many pairs of a sequence as `local-1d`.
    fn stride(length: usize) -> usize {
        // Sums over all queries in closed form, so that no length takes long.
        let [length, block] = [length, Self::BLOCK].map(|size| size as u128);
        let below = |end: u128| end * end.saturating_sub(1) / 2;
        let (blocks, rest) = (length / block, length % block);
        let local = blocks * below(block) + below(rest) + length * (block + 1) - block * length.min(block);
        // Its neighbours, of which the one at the distance of the stride is in its column too.
        let strided = |stride: u128| {
            let (near, rows) = (length.min(stride), length / stride);
            below(near) + stride * (length - near) + stride * below(rows) + length % stride * rows + near
        };
        (1..=2 * Self::BLOCK).min_by_key(|&stride| strided(stride as u128).abs_diff(local)).expect("there are strides")
    }

    /// Forward and backward of each mechanism.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let layers = Layers { sizes: self.layer.sizes(1, length)?, training: true };
            let named = |name: &str, config: &Value| layers.ours(name, config, Engine::Auto).against(DENSE);
            let ours = |config: Value| named(config["name"].as_str().unwrap_or_default(), &config);
            let after = |name: &str| {
                let candidate = named(&format!("{name}, memory"), &json!({ "name": name })).with_memory();
                candidate.against("heedful dot-product, memory")
            };
            // Spans are fractions of the length.
            let span = (Self::BLOCK as f64 / length as f64).min(1.0);
            let image = json!({ "name": "local-2d", "width": Self::WIDTH, "query_block": Self::BLOCK_2D, "memory": Self::MEMORY_2D });
            Ok(layers.sizes.case(vec![
                ours(json!({ "name": "dot-product" })),
                ours(json!({ "name": "relative" })),
                ours(json!({ "name": "learned-relative" })),
                ours(json!({ "name": "adaptive-span", "kind": "fixed", "initial": span })),
                ours(json!({ "name": "local-1d", "query_block": Self::BLOCK })),
                ours(image),
                ours(json!({ "name": "sparse-strided", "stride": Self::stride(length) })),
                after("dot-product"),
                after("relative"),
            ]))
        };
        let [[rows, columns], [above, beside]] = [Self::BLOCK_2D, Self::MEMORY_2D];
        Ok(Plan {
            what: "positions",
            title: "Relative positions, spans and patterns, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1. Rows that end in `memory` are given a memory as long as the sequence. \
                 `adaptive-span` has fixed spans of {block} keys and a ramp of 32. Patterns see about as many pairs as each other: `local-1d` has blocks of {block}; \
                 `local-2d` has blocks of {rows} x {columns} and a memory of {above} rows and {beside} columns in an image {} wide, which is fewer pairs near the \
                 beginning (at 512 nine tenths as many); the stride of `sparse-strided` is chosen for each length so that it sees as many as `local-1d`.",
                self.layer.d_model,
                self.layer.heads,
                Self::WIDTH,
                block = Self::BLOCK,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl DropoutOptions {
    /// Forward and backward of a layer that drops weights, on both sides.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let sizes = self.layer.sizes(1, length)?;
            let layers = Layers { sizes, training: true };
            let dropping = |candidate: Candidate| candidate.with_dropout(self.dropout).against(PYTORCH_SDPA);
            let mut theirs = dropping(layers.theirs(PYTORCH_SDPA, json!({ "name": "sdpa" })));
            let gibibytes = gibibytes(MATRICES_WITH_DROPOUT, sizes);
            if gibibytes > self.matrices {
                theirs.left_out = Some(format!("left out: about {gibibytes:.0} GiB of matrices"));
            }
            let ours = dropping(layers.ours("dot-product", &json!({ "name": "dot-product" }), Engine::Auto));
            Ok(sizes.case(vec![ours, theirs]))
        };
        Ok(Plan {
            what: "dropout",
            title: "Dropout of attention's weights, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1, which drops weights with a probability of {}. \
                 PyTorch's scaled_dot_product_attention has no fused kernel for that on processors and forms the matrices of all pairs.",
                self.layer.d_model, self.layer.heads, self.dropout,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_attention::description::multiplications::multiplications;
    use serde::Deserialize;

    use crate::peers::options::defaults;
    use crate::peers::plan::Case;
    use crate::peers::work::Work;

    /// Multiplications of all pairs that a candidate of a case sees. Each query is asked about: of many at once some would be looked at.
    fn pairs(case: &Case, name: &str) -> f64 {
        let candidate = case.candidates.iter().find(|candidate| candidate.name == name).unwrap();
        let Work::Attention { method, sizes, .. } = &candidate.work else { panic!("{candidate:?} is no attention") };
        let spec = Sizes { heads: 1, ..*sizes }.spec(Role::Decoder);
        let attention = AnyMechanism::deserialize(method).unwrap().init(&spec, &RandomKey::from_seed(0), &Device::flex());
        (0..sizes.length).map(|query| multiplications(&attention, &spec, query..query + 1, sizes.length).pairs).sum()
    }

    #[test]
    fn patterns_are_compared_at_equal_pairs() {
        for case in defaults::<PositionsOptions>().plan().unwrap().cases {
            let local = pairs(&case, "heedful local-1d");
            let relative = |name: &str| pairs(&case, name) / local;
            let (strided, image) = (relative("heedful sparse-strided"), relative("heedful local-2d"));
            assert!((0.99..=1.01).contains(&strided), "{}: {strided}", case.name);
            assert!((0.88..=1.0).contains(&image), "{}: {image}", case.name);
        }
    }

    #[test]
    fn the_stride_sees_most_nearly_as_many_pairs_as_the_blocks() {
        const BLOCK: usize = PositionsOptions::BLOCK;
        for length in [1, 5, 127, 128, 129, 300, 512, 1000, 4096] {
            let local: usize = (0..length).map(|query| query.min(query % BLOCK + BLOCK) + 1).sum();
            let strided = |stride: usize| (0..length).map(|query| query.min(stride) + (query / stride).max(1)).sum::<usize>();
            let expected = (1..=2 * BLOCK).min_by_key(|&stride| strided(stride).abs_diff(local)).unwrap();
            assert_eq!(PositionsOptions::stride(length), expected, "length {length}");
        }
        assert!((1..=2 * BLOCK).contains(&PositionsOptions::stride(usize::MAX)));
    }
}
