//! What parameters mean, by their paths.

/// What a parameter of an attention means, by the end of its path.
const OF_ATTENTION: &[(&str, &str)] = &[
    ("query.weight", "query projection [d_in, d_out]; heads lie side by side in d_out"),
    ("key.weight", "key projection [d_in, d_out]; heads lie side by side in d_out"),
    ("value.weight", "value projection [d_in, d_out]; heads lie side by side in d_out"),
    ("output.weight", "output projection [d_in, d_out]; heads lie side by side in d_in"),
    ("hidden.weight", "first layer of the synthesizer [d_in, d_out]; heads lie side by side in d_out"),
    ("position", "second layer of the dense synthesizer, transposed: [heads (1 if shared), key position, d_head]"),
    ("block", "second layer of the block-repeated factor [heads, d_head, a]"),
    ("tile", "second layer of the tiled factor [heads, d_head, b]"),
    ("table", "logits [heads, query position, key position]"),
    ("frozen_table", "logits as they were drawn [heads, query position, key position]"),
    ("query_factor", "factor of the logits [heads, query position, rank]"),
    ("key_factor", "factor of the logits [heads, key position, rank]"),
    ("position.weight", "key projection of distances [d_in, d_out]; heads lie side by side in d_out"),
    ("content_bias", "u, added to queries that score contents [heads, d_head]"),
    ("position_bias", "v, added to queries that score distances [heads, d_head]"),
    ("distances", "key vectors of the distances 0, 1, .. [distance, d_head]"),
    ("span", "learned spans as fractions of the longest [heads]"),
    ("gate.weight", "prediction of spans [d_in, heads]"),
    ("gate.bias", "bias of the prediction of spans [heads]"),
    ("query_key.weight", "shared projection of queries and keys [d_in, d_out]; heads lie side by side in d_out"),
    ("rotations", "random rotations of the hash [rounds, heads, d_head, half the buckets]; those of two factors side by side"),
    ("key_slots.matrix", "E, over positions [matrices, slots, position]"),
    ("key_slots.frozen_matrix", "E as it was drawn, over positions [matrices, slots, position]"),
    ("value_slots.matrix", "F, over positions [matrices, slots, position]"),
    ("value_slots.frozen_matrix", "F as it was drawn, over positions [matrices, slots, position]"),
    ("input.weight", "input projection [d_in, d_out], values before gates; heads lie side by side among the values"),
    ("input.bias", "bias of the input projection"),
    ("output.bias", "bias of the output projection"),
    ("kernel.weight", "logits of the taps, earliest position first [heads, taps]"),
    ("kernel.predictor.weight", "prediction of the logits of taps [d_in, heads x taps], earliest position first"),
    ("kernel.predictor.bias", "bias of the logits of taps [heads x taps]"),
    ("head_weights", "weights of the members before their softmax [members, heads]"),
    ("layer_weight", "a of the weights 1 - sigmoid(a), sigmoid(a)"),
];

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
    ("input.weight", "W_1 [d_in, d_ff]"),
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
    ("norm.gamma", "scale of the layer normalisation"),
    ("norm.beta", "shift of the layer normalisation"),
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
    let among = |table: &[(&str, &'static str)], path: &str| {
        let ends = |name: &str| path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'));
        table.iter().find(|(name, _)| ends(name)).map(|(_, meaning)| *meaning)
    };
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
        return among(OF_ATTENTION, rest);
    }
    among(OF_MODEL, path).or_else(|| among(OF_ATTENTION, path))
}

/// What the parameter at `path` of a gate alone means.
pub(super) fn meaning_in_gate(path: &str) -> Option<&'static str> {
    OF_GATE.iter().find(|(name, _)| *name == path).map(|(_, meaning)| *meaning)
}
