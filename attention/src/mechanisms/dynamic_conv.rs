//! Dynamic convolution (Wu et al. 2019, section 4).
//!
//! A lightweight convolution with a predicted kernel: each position predicts its kernel from its own projected input, `softmax(x'_i W_Q)` over the `t` taps of
//! each head. The predictor is linear, by default without bias. There are no query-key products. The prediction takes most of the time.
//!
//! As in fairseq, the predictor reads the convolved input, after the gated linear unit.
//!
//! On CPUs the sum over the taps and the gated linear unit are one operator each, forward and backward; each operator saves only its inputs.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/dynamic-conv.svg")]

use crate::mechanisms::convolution_attention::{
    self, ConvolutionAttention, ConvolutionExecution, EVEN_KERNELS, Kernel, KernelOptions, KernelSizes, projections,
};
use crate::mechanisms::prelude::*;

/// Configuration of [`DynamicConv`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct DynamicConvConfig {
    /// Number of taps, at least 1: one number, or a list with one number per layer, whose last number also applies to all higher layers. Default: 3, 7, 15, 31,
    /// where taps above 3 are at most the largest odd number within a quarter of the maximal length.
    pub kernel: Option<KernelSizes>,
    /// Whether the kernel predictor has a bias, that is, a static lightweight kernel added to each prediction (default: no).
    pub kernel_bias: bool,
    /// Whether the input projection is a gated linear unit (default: yes).
    pub glu: bool,
    /// Whether the weights of a row are divided by their sum over the visible taps, so that the softmax covers only these taps (default: no).
    pub renormalise_padding: bool,
    /// Execution (default: unfolded).
    pub execution: ConvolutionExecution,
}

impl Default for DynamicConvConfig {
    fn default() -> Self {
        Self { kernel: None, kernel_bias: false, glu: true, renormalise_padding: false, execution: ConvolutionExecution::Unfolded }
    }
}

/// A predicted kernel per head and position.
///
/// Should be created with [`DynamicConvConfig`].
#[derive(Module, Debug)]
pub struct DynamicConv {
    /// Predictor of the tap logits, `[C, H k]`, head by head.
    pub predictor: Linear,
    heads: usize,
}

impl DynamicConvConfig {
    /// Kernel sizes of the layers in a model with this maximal length.
    pub fn kernel_at(&self, max_length: usize) -> KernelSizes {
        self.kernel.clone().unwrap_or_else(|| KernelSizes::of_length(max_length))
    }
}

impl Mechanism for DynamicConvConfig {
    type Module = AttentionOf<ConvolutionAttention<DynamicConv>>;
    const NAME: &'static str = "dynamic-conv";
    const CARD: Card = Card {
        variant: "DynamicConv",
        description: "Convolution whose kernel each position predicts.",
        source: "Wu et al. 2019, section 4",
        links: &[
            "https://arxiv.org/abs/1901.10430",
            "https://github.com/facebookresearch/fairseq/tree/main/examples/pay_less_attention_paper",
        ],
        kind: Kind::Whole,
        time: "n (H + 1) t d",
        state: "t d",
        letters: &[("t", "taps of a kernel, option `kernel`, by default at most `L / 4`")],
        differences: &[
            EVEN_KERNELS,
            "The input has no dropout of its own; fairseq drops 0.1 of it.",
            "The predictor starts Xavier-uniform, as in fairseq's CUDA kernels; its implementation in tensor operations draws it uniformly on `±1 / sqrt(d)`.",
        ],
        tensors: &[
            ("kernel.predictor.weight", "predictor of the tap logits [d_in, heads x taps], earliest position first"),
            ("kernel.predictor.bias", "bias of the tap logits [heads x taps]"),
        ],
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

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> ConvolutionAttention<DynamicConv> {
        let taps = self.kernel_at(spec.max_length).at(spec.layer).expect("validated: there is a kernel size");
        let LayerSpec { d_model, heads, .. } = *spec;
        let predictor = init::linear(d_model, heads * taps, self.kernel_bias, &key.named("kernel"), device);
        let options = KernelOptions { taps, glu: self.glu, renormalise: self.renormalise_padding, execution: self.execution };
        ConvolutionAttention::new(DynamicConv { predictor, heads }, options, spec, key, device)
    }

    /// Wu et al. 2019, section 4.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(convolution_attention::formula(self.glu, self.renormalise_padding, |query| {
            let input = convolution_attention::convolved(self.glu, query, query.index);
            let predicted = query.mapped("kernel.predictor", &input);
            let taps = predicted.len() / query.spec().heads;
            predicted[query.head * taps..(query.head + 1) * taps].to_vec()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let bias = if self.kernel_bias { ParameterFormula::trained(&[(1, "H t")]) } else { ParameterFormula::none() };
        Some(projections(self.glu).plus(ParameterFormula::trained(&[(1, "d H t")])).plus(bias))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("t", self.kernel_at(max_length).at(0).unwrap_or(1))]
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        vec![("t", self.kernel_at(spec.max_length).at(spec.layer).unwrap_or(1))]
    }
}

impl Kernel for DynamicConv {
    fn logits(&self, query: &Tensor<3>) -> Tensor<4> {
        split_heads(linear(query.clone(), &self.predictor), self.heads)
    }
}
