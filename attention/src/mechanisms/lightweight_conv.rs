//! Lightweight convolution (Wu et al. 2019, section 3).
//!
//! A depth-wise convolution whose kernel is normalised by a softmax over its taps and shared by the channels of a head. The input projection is a gated linear
//! unit. Each query weights its neighbours only by their distance. Dropout acts on normalised weights (DropConnect).
//!
//! On CPUs the sum over the taps and the gated linear unit are one operator each, forward and backward; each operator saves only its inputs.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/lightweight-conv.svg")]

use crate::mechanisms::convolution_attention::{
    self, ConvolutionAttention, ConvolutionExecution, EVEN_KERNELS, Kernel, KernelOptions, KernelSizes, projections,
};
use crate::mechanisms::prelude::*;

/// Configuration of [`LightweightConv`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LightweightConvConfig {
    /// Number of taps, at least 1: one number, or a list with one number per layer, whose last number also applies to all higher layers. Default: 3, 7, 15, 31,
    /// where taps above 3 are at most the largest odd number within a quarter of the maximal length.
    pub kernel: Option<KernelSizes>,
    /// Whether the input projection is a gated linear unit (default: yes).
    pub glu: bool,
    /// Whether the weights of a row are divided by their sum over the visible taps, so that the softmax covers only these taps (default: no).
    pub renormalise_padding: bool,
    /// Execution (default: unfolded).
    pub execution: ConvolutionExecution,
}

impl Default for LightweightConvConfig {
    fn default() -> Self {
        Self { kernel: None, glu: true, renormalise_padding: false, execution: ConvolutionExecution::Unfolded }
    }
}

/// One kernel per head.
///
/// Should be created with [`LightweightConvConfig`].
#[derive(Module, Debug)]
pub struct LightweightConv {
    /// Logits of the taps, `[H, k]`.
    pub weight: Param<Tensor<2>>,
}

impl LightweightConvConfig {
    /// Kernel sizes of the layers in a model with this maximal length.
    pub fn kernel_at(&self, max_length: usize) -> KernelSizes {
        self.kernel.clone().unwrap_or_else(|| KernelSizes::of_length(max_length))
    }
}

impl Mechanism for LightweightConvConfig {
    type Module = AttentionOf<ConvolutionAttention<LightweightConv>>;
    const NAME: &'static str = "lightweight-conv";
    const CARD: Card = Card {
        variant: "LightweightConv",
        description: "Convolution with a trained softmax-normalised kernel per head.",
        source: "Wu et al. 2019, section 3",
        links: &[
            "https://arxiv.org/abs/1901.10430",
            "https://github.com/facebookresearch/fairseq/tree/main/examples/pay_less_attention_paper",
        ],
        kind: Kind::Whole,
        time: "n t d",
        state: "t d",
        letters: &[("t", "taps of a kernel, option `kernel`, by default at most `L / 4`")],
        differences: &[
            EVEN_KERNELS,
            "The input has no dropout of its own; fairseq drops 0.1 of it.",
            "Dropout acts on the weights of each query separately, as in fairseq's implementation in tensor operations; its CUDA kernels drop a weight for all positions.",
        ],
        tensors: &[("kernel.weight", "logits of the taps, earliest position first [heads, taps]")],
        has_engines: false,
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { kernel: Some(KernelSizes::All(7)), ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { kernel: Some(self.kernel_at(max_length)), ..self }
    }

    /// # Errors
    /// If the list of kernel sizes is empty, or a size is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        self.kernel_at(spec.max_length).validate(Self::NAME, spec)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> ConvolutionAttention<LightweightConv> {
        let taps = self.kernel_at(spec.max_length).at(spec.layer).expect("validated: there is a kernel size");
        let heads = spec.heads;
        let weight = Init::XavierUniform { fan_in: taps, fan_out: heads * taps }.parameter([heads, taps], &key.named("kernel"), device);
        let options = KernelOptions { taps, glu: self.glu, renormalise: self.renormalise_padding, execution: self.execution };
        ConvolutionAttention::new(LightweightConv { weight }, options, spec, key, device)
    }

    /// Wu et al. 2019, section 3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(convolution_attention::formula(self.glu, self.renormalise_padding, |query| {
            query.parameter("kernel.weight").row(&[query.head]).to_vec()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(projections(self.glu).plus(ParameterFormula::trained(&[(1, "H t")])))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("t", self.kernel_at(max_length).at(0).unwrap_or(1))]
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        vec![("t", self.kernel_at(spec.max_length).at(spec.layer).unwrap_or(1))]
    }
}

impl Kernel for LightweightConv {
    fn logits(&self, _query: &Tensor<3>) -> Tensor<4> {
        let [heads, taps] = self.weight.dims();
        self.weight.val().reshape([1, heads, 1, taps])
    }
}
