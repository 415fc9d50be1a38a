//! What the configurations of the three models have in common: setters in the manner of Burn's configurations, and building.

/// Writes the setters of what all models have, and `build`.
macro_rules! model_builders {
    ($config:ident, $model:ident) => {
        impl burn::config::Config for $config {}

        impl $config {
            /// Sets the width of the model, at least 1, a multiple of the number of heads (default 512).
            pub fn with_d_model(mut self, d_model: usize) -> Self {
                self.block.d_model = d_model;
                self
            }

            /// Sets the number of heads, a divisor of the width (default 8).
            pub fn with_n_heads(mut self, n_heads: usize) -> Self {
                self.block.heads = n_heads;
                self
            }

            /// Sets the number of hidden units of the feed-forward networks, at least 1 (default 2048, whatever the width).
            pub fn with_d_ff(mut self, d_ff: usize) -> Self {
                self.block.d_ff = d_ff;
                self
            }

            /// Sets the length of the longest sequence in tokens, at least 1 (default 512).
            pub fn with_max_length(mut self, max_length: usize) -> Self {
                self.block.max_length = max_length;
                self
            }

            /// Sets the dropout probability of sublayers and embeddings, in `[0, 1)` (default 0.1).
            pub fn with_dropout(mut self, dropout: f64) -> Self {
                self.block.dropout = dropout;
                self
            }

            /// Sets the dropout probability of attention weights, in `[0, 1)` (default 0).
            pub fn with_attention_dropout(mut self, dropout: f64) -> Self {
                self.block.attention_dropout = dropout;
                self
            }

            /// Sets where layer normalisation stands (default: after the residual sum).
            pub fn with_norm_order(mut self, norm_order: crate::residual::NormOrder) -> Self {
                self.block.norm_order = norm_order;
                self
            }

            /// Sets the non-linearity of the feed-forward networks (default: ReLU).
            pub fn with_activation(mut self, activation: crate::feed_forward::Activation) -> Self {
                self.block.activation = activation;
                self
            }

            /// Sets all sizes and options of the layers at once, those of the setters above too.
            pub fn with_block(mut self, block: crate::block::BlockConfig) -> Self {
                self.block = block;
                self
            }

            /// Sets the position vectors (default: sinusoidal, which need an even width).
            pub fn with_positions(mut self, positions: crate::position::PositionConfig) -> Self {
                self.positions = positions;
                self
            }

            /// Sets whether each layer has weights of its own (default: each has).
            pub fn with_depth(mut self, depth: crate::depth::DepthConfig) -> Self {
                self.depth = depth;
                self
            }

            /// Sets how initial weights are drawn (default: Xavier-uniform).
            pub fn with_initialisation(mut self, initialisation: crate::initialisation::Initialisation) -> Self {
                self.initialisation = initialisation;
                self
            }

            /// Sets the seed of initial weights and of the dropout of `forward`: the same numbers on every backend (default: the device's generator draws it).
            pub fn with_seed(mut self, seed: u64) -> Self {
                self.seed = Some(seed);
                self
            }

            /// Checks the configuration and builds the model. With a seed the weights are those of [`init`](Self::init) with
            /// [`RandomKey::from_seed`](heedful_attention::random::RandomKey::from_seed).
            ///
            /// # Errors
            /// As [`validate`](Self::validate).
            pub fn build(&self, device: &burn::tensor::Device) -> Result<$model, crate::error::ConfigError> {
                self.validate()?;
                Ok(self.init(&self.root(device), device))
            }

            /// Checks the configuration and builds the model with attentions that `attention` makes for their place, from their key: any type that implements
            /// [`Attention`](heedful_attention::contract::Attention). The [first page](crate) has an example.
            ///
            /// # Errors
            /// As [`validate`](Self::validate).
            pub fn build_with<A: heedful_attention::contract::Attention>(
                &self,
                device: &burn::tensor::Device,
                attention: impl Fn(
                    &heedful_attention::placement::Placement,
                    &heedful_attention::random::RandomKey,
                    &burn::tensor::Device,
                ) -> A,
            ) -> Result<$model<A>, crate::error::ConfigError> {
                self.validate()?;
                Ok(self.init_with(&self.root(device), device, attention))
            }

            fn root(&self, device: &burn::tensor::Device) -> heedful_attention::random::RandomKey {
                use heedful_attention::random::RandomKey;
                self.seed.map_or_else(|| RandomKey::drawn(device), RandomKey::from_seed)
            }
        }
    };
}

pub(crate) use model_builders;
