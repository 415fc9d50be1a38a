//! Dynamic convolution (Wu et al. 2019, section 4).
//!
//! A lightweight convolution whose kernel is predicted for each position from the projected input at that position alone: `softmax(x'_i W_Q)` over the `t`
//! taps of each head, linear and by default without bias. No query meets a key. Most of the time is that of the prediction.
//!
//! As in fairseq, the kernel is predicted from what is convolved, after the gated linear unit.
//!
//! On CPUs the sum over the taps and the gated linear unit are one operator each, forward and backward, which hold their inputs alone.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
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
    /// Number of taps, at least 1: one number, or a list with one for each layer, whose last one holds for all layers above (default: 3, 7, 15, 31,
    /// those above 3 at most the greatest odd number within a quarter of the maximal length).
    pub kernel: Option<KernelSizes>,
    /// Whether the prediction of kernels has a bias: the kernel of a lightweight convolution, added to each (default: no).
    pub kernel_bias: bool,
    /// Whether the input projection is a gated linear unit (default: yes).
    pub glu: bool,
    /// Whether the weights of a row are divided by their sum over the visible taps, which makes the softmax one over these taps (default: no).
    pub renormalise_padding: bool,
    /// How it is computed (default: unfolded).
    pub execution: ConvolutionExecution,
}

impl Default for DynamicConvConfig {
    fn default() -> Self {
        Self { kernel: None, kernel_bias: false, glu: true, renormalise_padding: false, execution: ConvolutionExecution::Unfolded }
    }
}

/// A kernel for each head and position.
///
/// Should be created with [`DynamicConvConfig`].
#[derive(Module, Debug)]
pub struct DynamicConv {
    /// Prediction of the logits of taps, `[C, H k]`, head by head.
    pub predictor: Linear,
    heads: usize,
}

impl DynamicConvConfig {
    /// Taps of the layers in a model of this maximal length.
    pub fn kernel_at(&self, max_length: usize) -> KernelSizes {
        self.kernel.clone().unwrap_or_else(|| KernelSizes::of_length(max_length))
    }
}

impl Mechanism for DynamicConvConfig {
    type Module = AttentionOf<ConvolutionAttention<DynamicConv>>;
    const NAME: &'static str = "dynamic-conv";
    const CARD: Card = Card {
        variant: "DynamicConv",
        description: "Weighs neighbours by a kernel that each position predicts.",
        source: "Wu et al. 2019, section 4",
        links: &[
            "https://arxiv.org/abs/1901.10430",
            "https://github.com/facebookresearch/fairseq/tree/main/examples/pay_less_attention_paper",
        ],
        kind: Kind::Whole,
        time: "n (H + 1) t d",
        state: "t d",
        letters: &[("t", "taps of a kernel, option `kernel`, by default at most `L / 4`")],
        differences: &[EVEN_KERNELS],
        tensors: &[
            ("kernel.predictor.weight", "prediction of the logits of taps [d_in, heads x taps], earliest position first"),
            ("kernel.predictor.bias", "bias of the logits of taps [heads x taps]"),
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
    /// If there is no kernel size, or one of 0.
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
