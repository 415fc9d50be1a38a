//! Passes through a block for a subset of positions: those that have not halted.
//!
//! A halted position keeps its state (Dehghani et al. 2018, section 2.2), to which others still attend. It is a key and a value of self-attention but not a
//! query, and cross-attention and the feed-forward network can skip it. Feed-forward networks always skip halted positions, except separable ones, which read
//! neighbours. Attentions skip them if their queries may be arbitrary positions ([`Attention::any_queries`]). In decoding, self-attention processes all
//! queries, since it must cache all positions.

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::prelude::*;

use super::{Block, BlockState, Context, Hidden, Sublayer};

/// Positions of a batch whose states are still updated.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// Running positions of each row, in ascending order.
    rows: Vec<Vec<usize>>,
    length: usize,
}

/// Arrangement of the states of a batch in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// All positions, `[B, N, C]`.
    All,
    /// Running positions, padded to the longest row, `[B, R, C]`, by repeating the last one.
    Rows,
    /// Only running positions, `[1, Σ R_b, C]`.
    Alone,
}

impl Running {
    /// Positions marked in `[B, N]`, row by row; `None` if all are.
    pub(crate) fn of(marked: &[bool], length: usize) -> Option<Self> {
        let rows = marked.chunks(length).map(|row| (0..length).filter(|&at| row[at]).collect()).collect();
        marked.contains(&false).then_some(Self { rows, length })
    }

    /// Whether no position is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }

    /// Length of a row in [`Order::Rows`].
    fn longest(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Positions in [`Order::Rows`].
    fn repeated(&self) -> Vec<Vec<usize>> {
        let longest = self.longest();
        let row = |row: &Vec<usize>| {
            let last = row.last().copied().unwrap_or(0);
            row.iter().copied().chain(std::iter::repeat(last)).take(longest).collect()
        };
        self.rows.iter().map(row).collect()
    }

    /// Query indices in [`Order::Rows`], for a batch that begins at `start` of a sequence.
    fn queries(&self, start: usize) -> Arc<[Vec<usize>]> {
        self.repeated().into_iter().map(|row| row.into_iter().map(|at| start + at).collect()).collect()
    }

    /// Rearranges states from the order `from` to `to`. Positions missing in `from` get arbitrary values.
    fn arranged(&self, x: Tensor<3>, from: Order, to: Order) -> Tensor<3> {
        if from == to {
            return x;
        }
        let [outer, inner, width] = x.dims();
        let longest = self.longest();
        let mut first_alone = 0;
        let mut indices = Vec::new();
        for (row, running) in self.rows.iter().enumerate() {
            let place = |at: usize| match (from, running.binary_search(&at)) {
                (Order::All, _) => row * self.length + at,
                (Order::Rows, Ok(rank)) => row * longest + rank,
                (Order::Alone, Ok(rank)) => first_alone + rank,
                (Order::Rows | Order::Alone, Err(_)) => 0,
            };
            let last = running.last().copied().unwrap_or(0);
            match to {
                Order::All => indices.extend((0..self.length).map(place)),
                Order::Alone => indices.extend(running.iter().copied().map(place)),
                Order::Rows => indices.extend(running.iter().copied().chain(std::iter::repeat(last)).take(longest).map(place)),
            }
            first_alone += running.len();
        }
        let shape = match to {
            Order::All => [self.rows.len(), self.length, width],
            Order::Rows => [self.rows.len(), longest, width],
            Order::Alone => [1, indices.len(), width],
        };
        let count = indices.len();
        let indices: Vec<i32> = indices.into_iter().map(|index| index as i32).collect();
        let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [count]), &x.device());
        x.reshape([outer * inner, width]).select(0, indices).reshape(shape)
    }
}

impl<A: Attention> Block<A> {
    /// As [`forward`](Self::forward), or with a state as [`step`](Self::step), restricted to the running positions of `x` `[B, N, C]`, as far as the block
    /// supports it; results for the others are arbitrary. `None` runs all positions.
    pub(crate) fn pass_running(
        &self,
        x: Tensor<3>,
        context: &Context,
        running: Option<&Running>,
        random: Option<RandomKey>,
        mut state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) -> Hidden {
        let Some(running) = running.filter(|_| self.parallel.is_none()) else {
            return self.pass(x, context, random, state, probe);
        };
        if running.is_empty() && state.is_none() {
            return Hidden { states: x, losses: Losses::default() };
        }
        // Cached states of a step keep their order.
        let own =
            state.is_none().then(|| self.seen_by_running(&self.self_attention, &context.visibility, running, context.positions.start));
        let of_cross = |attention| self.seen_by_running(attention, &context.memory_visibility, running, context.positions.start);
        let cross = self.cross_attention.as_ref().and_then(of_cross);
        let own = own.flatten();
        let sublayers: Vec<Sublayer> = self.sublayers().collect();
        let can_skip = |sublayer: &Sublayer| match sublayer {
            Sublayer::SelfAttention => own.is_some(),
            Sublayer::CrossAttention => cross.is_some(),
            Sublayer::FeedForward => self.feed_forward.as_ref().is_some_and(|network| !network.is_separable()),
        };
        let first = sublayers.iter().rposition(|sublayer| !can_skip(sublayer)).map_or(0, |last| last + 1);
        let of_running = Context {
            memory_visibility: cross.clone().unwrap_or_else(Visibility::all),
            positions: Positions::default(),
            lengths: None,
            unpadding: None,
            ..context.clone()
        };

        let mut losses = Losses::default();
        let (mut stream, mut order) = (x, Order::All);
        for (index, &sublayer) in sublayers.iter().enumerate() {
            let is_skipping = index >= first;
            if is_skipping && running.is_empty() {
                break;
            }
            let (name, residual) = self.residual(sublayer);
            let key = random.map(|key| key.named(sublayer.name()));
            let mut context = context;
            let mut keys = None;
            if is_skipping {
                context = &of_running;
                let wanted = if sublayer == Sublayer::FeedForward { Order::Alone } else { Order::Rows };
                if sublayer == Sublayer::SelfAttention {
                    let carried = context.carried.clone();
                    let all = carried.into_iter().chain([stream.clone()]).map(|states| residual.input(states)).collect();
                    keys = Some((Tensor::cat(all, 1), own.clone().expect("self-attention is skipped where queries may be any")));
                }
                stream = running.arranged(stream, order, wanted);
                order = wanted;
            }
            stream = residual.forward(name, stream, key, probe, |x, probe| {
                let output = match keys {
                    Some((keys, visibility)) => {
                        let input = AttentionInput::cross_attention(x, keys).visibility(visibility).random(key);
                        probe.within(sublayer.name(), None, |probe| self.self_attention.forward(input, probe))
                    }
                    None => self.sublayer(sublayer, x, context, key, state.as_deref_mut(), probe),
                };
                losses.extend(output.losses);
                output.context
            });
        }
        Hidden { states: running.arranged(stream, order, Order::All), losses }
    }

    /// Visibility of the running queries, if the attention accepts them without the others.
    fn seen_by_running(&self, attention: &A, visibility: &Visibility, running: &Running, start: usize) -> Option<Visibility> {
        visibility.within(&attention.any_queries()?).of_queries(running.queries(start))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use burn::tensor::Device;

    use super::*;
    use crate::block::{BlockConfig, Parallel};
    use crate::parts::feed_forward::counted_positions;
    use crate::parts::residual::NormOrder;

    const LENGTH: usize = 7;

    static ASKED: Mutex<Vec<[usize; 3]>> = Mutex::new(Vec::new());

    /// Dot-product attention that counts its queries.
    #[derive(burn::module::Module, Debug)]
    struct Counting {
        inner: AnyAttention,
    }

    impl Attention for Counting {
        type State = <AnyAttention as Attention>::State;

        fn abilities(&self) -> heedful_attention::contract::abilities::Abilities {
            self.inner.abilities()
        }

        fn forward(&self, input: AttentionInput, probe: &mut Probe) -> heedful_attention::contract::AttentionOutput {
            ASKED.lock().unwrap().push(input.query.dims());
            self.inner.forward(input, probe)
        }

        fn state(&self, start: &DecodingStart) -> Self::State {
            self.inner.state(start)
        }

        fn step(&self, query: Tensor<3>, state: &mut Self::State, probe: &mut Probe) -> heedful_attention::contract::AttentionOutput {
            self.inner.step(query, state, probe)
        }

        fn select(&self, state: &mut Self::State, rows: &[usize]) {
            self.inner.select(state, rows);
        }

        fn any_queries(&self) -> Option<Visibility> {
            self.inner.any_queries()
        }
    }

    fn block(attention: &AnyMechanism, role: Role, config: BlockConfig, device: &Device) -> Block {
        let config = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..config };
        let key = RandomKey::from_seed(3);
        let build = |attention: &AnyMechanism, role: Role| attention.init(&config.spec(role, 0, 1, 2), &key.named("attention"), device);
        let cross = (role == Role::Decoder).then(|| build(&AnyMechanism::default(), Role::Cross));
        config.init(role, build(attention, role), cross, &key, device)
    }

    fn states(seed: u64, length: usize, device: &Device) -> Tensor<3> {
        Init::Normal(1.0).tensor([3, length, 8], &RandomKey::from_seed(seed), device)
    }

    /// The last row has no running position.
    fn marked() -> Vec<bool> {
        let rows = [[true, false, true, true, false, false, true], [false, true, false, false, false, true, false], [false; LENGTH]];
        rows.concat()
    }

    fn running() -> Running {
        Running::of(&marked(), LENGTH).unwrap()
    }

    fn context(role: Role, device: &Device) -> Context {
        let own = if role == Role::Decoder { Visibility::causal() } else { Visibility::padding(vec![7, 6, 7]) };
        let memory = (role == Role::Decoder).then(|| states(9, 4, device));
        Context { memory, memory_visibility: Visibility::padding(vec![4, 2, 3]), ..Context::new(own) }
    }

    /// Maximum difference at running positions.
    fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
        let running = running();
        let [a, b] = [a, b].map(|x| running.arranged(x, Order::All, Order::Alone));
        assert_eq!(a.dims(), [1, 6, 8]);
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn states_are_found_again_in_every_order() {
        let device = Device::flex();
        let x = Tensor::<1>::from_data((0..21).map(|n| n as f32).collect::<Vec<_>>().as_slice(), &device).reshape([3, LENGTH, 1]);
        let numbers = |x: Tensor<3>| x.into_data().iter::<f32>().map(|x| x as usize).collect::<Vec<_>>();
        let running = running();
        let rows = running.arranged(x.clone(), Order::All, Order::Rows);
        assert_eq!((rows.dims(), numbers(rows.clone())), ([3, 4, 1], vec![0, 2, 3, 6, 8, 12, 12, 12, 14, 14, 14, 14]));
        let alone = running.arranged(rows.clone(), Order::Rows, Order::Alone);
        assert_eq!((alone.dims(), numbers(alone.clone())), ([1, 6, 1], vec![0, 2, 3, 6, 8, 12]));
        assert_eq!(numbers(running.arranged(x.clone(), Order::All, Order::Alone)), [0, 2, 3, 6, 8, 12]);
        for (from, x) in [(Order::Rows, rows), (Order::Alone, alone)] {
            let all = numbers(running.arranged(x, from, Order::All));
            for (index, is_running) in marked().into_iter().enumerate() {
                assert!(!is_running || all[index] == index, "{from:?}: {all:?}");
            }
        }
        assert_eq!(running.queries(10)[1], [11, 15, 15, 15]);
        assert!(Running::of(&[true; 6], 3).is_none() && Running::of(&[false; 6], 3).unwrap().is_empty());
    }

    #[test]
    fn running_positions_get_what_they_get_among_all() {
        let device = Device::flex();
        let orders = [NormOrder::Post, NormOrder::Pre, NormOrder::Sandwich];
        for role in [Role::Encoder, Role::Decoder] {
            let is_able =
                |attention: &AnyMechanism| if role == Role::Decoder { attention.can_be_causal() } else { attention.can_see_ahead() };
            for (index, attention) in AnyMechanism::all().into_iter().filter(is_able).enumerate() {
                let block = block(&attention, role, BlockConfig { norm_order: orders[index % 3], ..BlockConfig::default() }, &device);
                let (x, context) = (states(5, LENGTH, &device), context(role, &device));
                let all = block.forward(x.clone(), &context, None, &mut Probe::off()).states;
                let some = block.pass_running(x, &context, Some(&running()), None, None, &mut Probe::off()).states;
                let found = difference(all, some);
                assert!(found < 1e-5, "{attention}, {role:?}: {found}");
            }
        }
    }

    #[test]
    fn blocks_of_every_form_leave_out_what_they_can() {
        let device = Device::flex();
        // Number of 21 positions that pass the network: 6 run.
        for (config, expected) in [
            (BlockConfig::default(), 6),
            (BlockConfig { gated_feed_forward: true, feed_forward_chunk: Some(4), ..BlockConfig::default() }, 6),
            (BlockConfig { parallel: Some(Parallel::OwnNorms), norm_order: NormOrder::Pre, ..BlockConfig::default() }, 21),
            (BlockConfig { separable_feed_forward: true, ..BlockConfig::default() }, 21),
        ] {
            for role in [Role::Encoder, Role::Decoder] {
                let block = block(&AnyMechanism::default(), role, config, &device);
                let (x, context) = (states(5, LENGTH, &device), context(role, &device));
                let all = block.forward(x.clone(), &context, None, &mut Probe::off()).states;
                let (some, positions) =
                    counted_positions(|| block.pass_running(x, &context, Some(&running()), None, None, &mut Probe::off()));
                let found = difference(all, some.states);
                assert!(found < 1e-5, "{config:?}: {found}");
                assert_eq!(positions, expected, "{config:?}");
            }
        }
    }

    #[test]
    fn carried_positions_are_keys_of_running_ones() {
        let device = Device::flex();
        for norm_order in [NormOrder::Post, NormOrder::Pre] {
            let block = block(&AnyMechanism::default(), Role::Encoder, BlockConfig { norm_order, ..BlockConfig::default() }, &device);
            let positions = Positions::from_start(4);
            let context = Context { carried: Some(states(8, 4, &device)), positions, ..Context::new(Visibility::window(3, 0)) };
            let x = states(5, LENGTH, &device);
            let all = block.forward(x.clone(), &context, None, &mut Probe::off()).states;
            let some = block.pass_running(x, &context, Some(&running()), None, None, &mut Probe::off()).states;
            assert!(difference(all, some) < 1e-5);
        }
    }

    #[test]
    fn steps_remember_positions_that_have_halted() {
        let device = Device::flex();
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            let block = block(&attention, Role::Decoder, BlockConfig::default(), &device);
            let (context, x) = (context(Role::Decoder, &device), states(5, 2 * LENGTH, &device));
            let memory = DecodingStart::cross_attention(context.memory.clone().unwrap(), context.memory_visibility.clone());
            let [all, some] = [false, true].map(|is_skipping| {
                let mut state = block.state(&DecodingStart::self_attention(3, 2 * LENGTH), Some(&memory));
                let mut later = context.clone();
                let x = |part: usize| x.clone().narrow(1, part * LENGTH, LENGTH);
                let first = if is_skipping {
                    block.pass_running(x(0), &context, Some(&running()), None, Some(&mut state), &mut Probe::off())
                } else {
                    block.step(x(0), &context, &mut state, &mut Probe::off())
                };
                later.positions = Positions::from_start(LENGTH);
                (first.states, block.step(x(1), &later, &mut state, &mut Probe::off()).states)
            });
            assert!(difference(all.0, some.0) < 1e-5, "{attention}");
            let found: f32 = (all.1 - some.1).abs().max().into_scalar();
            assert!(found < 1e-5, "{attention}: {found} at later positions");
        }
    }

    #[test]
    fn steps_in_which_nothing_runs_remember_and_compute_no_more() {
        let device = Device::flex();
        let block = block(&AnyMechanism::default(), Role::Encoder, BlockConfig::default(), &device);
        let none = Running::of(&[false; 3], 1).unwrap();
        let context = Context::new(Visibility::causal());
        let mut state = block.state(&DecodingStart::self_attention(3, 2), None);
        let x = states(5, 1, &device);
        let (_, positions) =
            counted_positions(|| block.pass_running(x.clone(), &context, Some(&none), None, Some(&mut state), &mut Probe::off()));
        assert_eq!(positions, 0);
        let bytes = block.state_bytes(&state).unwrap();
        assert!(bytes > 0, "keys and values of the position are remembered");
        let (unchanged, positions) =
            counted_positions(|| block.pass_running(x.clone(), &context, Some(&none), None, None, &mut Probe::off()));
        assert_eq!((positions, unchanged.states.into_data()), (0, x.into_data()));
    }

    #[test]
    fn self_attention_is_asked_by_running_positions_alone() {
        let device = Device::flex();
        let config = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() };
        let key = RandomKey::from_seed(3);
        let [own, cross] = [Role::Decoder, Role::Cross]
            .map(|role| Counting { inner: AnyMechanism::default().init(&config.spec(role, 0, 1, 2), &key.named("attention"), &device) });
        let block = config.init(Role::Decoder, own, Some(cross), &key, &device);
        block.pass_running(states(5, LENGTH, &device), &context(Role::Decoder, &device), Some(&running()), None, None, &mut Probe::off());
        assert_eq!(*ASKED.lock().unwrap(), [[3, 4, 8]; 2]);
    }

    #[test]
    fn gradients_are_those_of_running_positions_among_all() {
        let device = Device::flex().autodiff();
        let block = block(&AnyMechanism::default(), Role::Decoder, BlockConfig::default(), &device);
        let context = context(Role::Decoder, &device);
        let weights = states(6, LENGTH, &device);
        let of_running = |x: Tensor<3>| running().arranged(x, Order::All, Order::Alone);
        let gradients = |pass: &dyn Fn(Tensor<3>) -> Tensor<3>| {
            let x = states(5, LENGTH, &device).require_grad();
            let found = (of_running(pass(x.clone())) * of_running(weights.clone())).sum().backward();
            let of_network = block.feed_forward.as_ref().unwrap().input.weight.grad(&found).unwrap();
            (x.grad(&found).unwrap(), of_network)
        };
        let (wanted, wanted_of_network) = gradients(&|x| block.forward(x, &context, None, &mut Probe::off()).states);
        let (found, of_network) = gradients(&|x| block.pass_running(x, &context, Some(&running()), None, None, &mut Probe::off()).states);
        let largest: f32 = wanted.clone().abs().max().into_scalar();
        assert!(largest > 0.1, "{largest}");
        let difference: f32 = (wanted - found).abs().max().into_scalar();
        assert!(difference < 1e-4, "{difference}");
        let difference: f32 = (wanted_of_network - of_network).abs().max().into_scalar();
        assert!(difference < 1e-4, "{difference}");
    }
}
