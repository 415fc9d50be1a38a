//! Descriptions of parameters by their paths. Mechanisms describe their own parameters in their files.

use heedful_attention::registry;

/// What a parameter of a gate means.
const OF_GATE: &[(&str, &str)] = &[
    ("gate.weight", "W_g [d_in, d_out]"),
    ("bias", "b_g"),
    ("reset.0.weight", "W_r, of y [d_in, d_out]"),
    ("reset.1.weight", "U_r, of x [d_in, d_out]"),
    ("update.0.weight", "W_z, of y [d_in, d_out]"),
    ("update.1.weight", "U_z, of x [d_in, d_out]"),
    ("candidate.0.weight", "W_g, of y [d_in, d_out]"),
    ("candidate.1.weight", "U_g, of r x [d_in, d_out]"),
    ("update.weight", "U_g [d_in, d_out]"),
];

/// What a parameter of a feed-forward network means.
const OF_FEED_FORWARD: &[(&str, &str)] = &[
    ("input.weight", "W_1, before the non-linearity [d_in, d_ff]"),
    ("input.bias", "b_1"),
    ("gate.weight", "V, of a gated network [d_in, d_ff]"),
    ("gate.bias", "c, of a gated network"),
    ("output.weight", "W_2 [d_ff, d_out]"),
    ("output.bias", "b_2"),
    ("input_convolution.weight", "convolution before W_1, earliest position first [positions, channels]"),
    ("output_convolution.weight", "convolution before W_2, earliest position first [positions, channels]"),
];

/// What another parameter of a model means.
const OF_MODEL: &[(&str, &str)] = &[
    ("norm.gamma", "scale of the normalisation; of rms-plus-one without the 1"),
    ("norm.beta", "shift of the layer normalisation"),
    ("output_norm.gamma", "scale of the normalisation of the output; of rms-plus-one without the 1"),
    ("output_norm.beta", "shift of the layer normalisation of the output"),
    ("unit.weight", "W of the halting unit [d_in, 1]"),
    ("unit.bias", "b of the halting unit"),
    ("steps.learned", "vectors of the steps [step, channels]"),
    ("learned", "vectors of the positions [position, channels]"),
    ("tables.0", "vectors of the rows of a grid [row, channels]"),
    ("tables.1", "vectors of the columns of a grid [column, channels]"),
    ("tables.2", "vectors of the channels of a grid [channel, channels]"),
];

/// What the parameter at `path` of an attention, a halting unit, a block or a stack means.
pub(super) fn meaning(path: &str) -> Option<&'static str> {
    fn among(table: &[(&'static str, &'static str)], path: &str) -> Option<&'static str> {
        let ends = |name: &str| path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'));
        table.iter().find(|(name, _)| ends(name)).map(|(_, meaning)| *meaning)
    }
    if let Some((_, rest)) = path.split_once("_residual.") {
        return match rest.strip_prefix("gate.") {
            Some(rest) => among(OF_GATE, rest),
            None => among(OF_MODEL, rest),
        };
    }
    if let Some((_, rest)) = path.split_once("feed_forward.") {
        return among(OF_FEED_FORWARD, rest);
    }
    if let Some((_, rest)) = path.split_once("_attention.") {
        return among(&registry::tensors(), rest);
    }
    among(OF_MODEL, path).or_else(|| among(&registry::tensors(), path))
}

/// What the parameter at `path` of a gate alone means.
pub(super) fn meaning_in_gate(path: &str) -> Option<&'static str> {
    OF_GATE.iter().find(|(name, _)| *name == path).map(|(_, meaning)| *meaning)
}
