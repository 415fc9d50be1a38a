use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use super::super::state::Metric;
use super::*;

/// Threads of this process, with a channel from each to each.
#[derive(Debug)]
struct Threads {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
}

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(&self, messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        for (to, message) in self.to.iter().zip(messages) {
            to.send(message).expect("the other rank has gone");
        }
        let receive =
            |from: &Mutex<Receiver<_>>| from.lock().unwrap_or_else(PoisonError::into_inner).recv().expect("the other rank has gone");
        self.from.iter().map(receive).collect()
    }
}

/// What each of so many ranks gives, in their order.
pub(in crate::train) fn on_ranks<R: Send>(size: usize, work: impl Fn(&Ranks) -> R + Sync) -> Vec<R> {
    let channels: Vec<Vec<_>> = (0..size).map(|_| (0..size).map(|_| channel()).collect()).collect();
    let senders: Vec<Vec<_>> = channels.iter().map(|row| row.iter().map(|(sender, _)| sender.clone()).collect()).collect();
    let mut receivers: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
    for row in channels {
        row.into_iter().zip(&mut receivers).for_each(|((_, receiver), of_rank)| of_rank.push(Mutex::new(receiver)));
    }
    std::thread::scope(|scope| {
        let ranks = senders.into_iter().zip(receivers).enumerate();
        let work = &work;
        let running: Vec<_> =
            ranks.map(|(rank, (to, from))| scope.spawn(move || work(&Ranks::of(Box::new(Threads { rank, to, from }))))).collect();
        running.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[test]
fn all_ranks_hear_what_the_first_one_says() {
    for size in 1..5 {
        let told = on_ranks(size, |ranks| {
            let any = [None, Some(0), Some(size - 1)].map(|who| ranks.any(Topic::Stop, Some(ranks.rank()) == who).unwrap());
            let first = ranks.of_first(Topic::Scores, || (ranks.rank(), "x".to_owned())).unwrap();
            let parts = [b"ab".to_vec(), Vec::new(), b"c".to_vec()];
            let own = if ranks.is_first() { &parts[..] } else { &[] };
            assert!(size == 1 || ranks.parts_of_first(Topic::Checkpoint, own).unwrap() == parts);
            (any, first)
        });
        assert_eq!(told, vec![([false, true, true], (0, "x".to_owned())); size]);
    }
}

#[test]
fn losses_are_in_the_order_of_the_micro_batches() {
    let loss = |number: usize| {
        let added = (0..number % 3).map(|index| Metric { name: format!("part {index}"), value: 1.0 / number as f64 });
        LossNumbers { total: number as f64 / 3.0, task: number as f64 / 7.0, added: added.collect() }
    };
    for (size, count) in [(1, 3), (2, 5), (3, 4), (4, 4), (4, 2)] {
        let told = on_ranks(size, |ranks| {
            let own: Vec<LossNumbers> = (0..count).filter(|number| number % size == ranks.rank()).map(loss).collect();
            ranks.totals(own, 10 + ranks.rank(), count).unwrap()
        });
        let losses: Vec<LossNumbers> = (0..count).map(loss).collect();
        assert_eq!(told, vec![(losses, (0..size).map(|rank| 10 + rank).sum()); size]);
    }
}

#[test]
fn what_differs_is_named_on_every_rank() {
    let agreed = on_ranks(3, |ranks| {
        ranks.agree("data", || vec![7]).unwrap();
        ranks.agree("configuration", || vec![u8::from(ranks.rank() == 2)])
    });
    assert_eq!(agreed, vec![Err(RankError::Differ { rank: 2, what: "configuration" }); 3]);
}

#[test]
fn a_rank_that_fails_tells_the_others_why_whatever_they_wait_for() {
    let ended = on_ranks(3, |ranks| {
        if ranks.rank() == 1 {
            ranks.fail("no such file", 2);
            // What follows from the failure is not sent.
            ranks.fail("another one", 1);
            return (None, ranks.failed_with());
        }
        let error = ranks.any(Topic::Stop, false).unwrap_err();
        ranks.fail(error.to_string(), 1);
        (Some(error), ranks.failed_with())
    });
    let failed = RankError::Failed { rank: 1, reason: "no such file".to_owned(), exit: 2 };
    assert_eq!(failed.to_string(), "rank 1: no such file");
    assert!(failed.is_usage());
    assert_eq!(ended, [(Some(failed.clone()), Some(2)), (None, Some(2)), (Some(failed), Some(2))]);
}

#[test]
fn ranks_at_different_places_of_the_program_end() {
    let ended = on_ranks(2, |ranks| {
        let topic = if ranks.is_first() { Topic::Stop } else { Topic::Time };
        let error = ranks.any(topic, true).unwrap_err();
        ranks.fail(error.to_string(), 1);
        error
    });
    let expected = |own, rank, expected, found| RankError::OutOfStep { own, rank, expected, found: Some(found) };
    assert_eq!(ended, [expected(0, 1, Topic::Stop, Topic::Time), expected(1, 0, Topic::Time, Topic::Stop)]);
}

#[test]
fn every_topic_is_known_by_its_letter() {
    let known: Vec<Topic> = (0..=u8::MAX).filter_map(Topic::of).collect();
    assert_eq!(known.len(), Topic::Scores as usize + 1, "{known:?}");
    assert!(known.iter().enumerate().all(|(letter, topic)| *topic as usize == letter));
}

#[derive(Module, Debug)]
struct Three {
    short: Param<Tensor<1>>,
    long: Param<Tensor<2>>,
    /// The first one again.
    tied: Param<Tensor<1>>,
    rare: Param<Tensor<1>>,
}

fn three(dtype: FloatDType) -> Three {
    let device = Device::flex().autodiff();
    let tensor = |length: usize| Tensor::<1>::zeros([length], &device).cast(dtype).detach().require_grad();
    let short = Param::from_tensor(tensor(2));
    let long = Param::from_tensor(tensor(21).reshape([3, 7]).detach().require_grad());
    Three { tied: short.clone(), short, long, rare: Param::from_tensor(tensor(5)) }
}

/// Of micro-batch `number`: numbers whose sum depends on its order. The last parameter has none in half of them.
fn gradients(model: &Three, number: usize) -> GradientsParams {
    let values = |length: usize, of: usize| -> Vec<f32> {
        (0..length).map(|at| ((at + of) as f32 + 0.1) * [1e4, 0.3, -1e4, 0.7, 3.0, -0.01][number % 6]).collect()
    };
    let (device, dtype) = (Device::flex(), model.short.val().dtype());
    let tensor = |length, of| Tensor::<1>::from_data(TensorData::new(values(length, of), [length]), (&device, dtype));
    let mut gradients = GradientsParams::new();
    gradients.register(model.short.id, tensor(2, 3));
    gradients.register(model.long.id, tensor(21, 1).reshape([3, 7]));
    match number {
        // Nothing and this is this, sign and all; a zero in the place of nothing would change it.
        1 => gradients.register(model.rare.id, tensor(5, 0) * -0.0),
        3 => gradients.register(model.rare.id, tensor(5, 0) * -0.0),
        _ => {}
    }
    gradients
}

/// The bits of the sum over micro-batches that are computed in this order.
fn sum(ranks: &Ranks, model: &Three, order: &[usize]) -> Vec<Option<Vec<u8>>> {
    let mut sum = GradientSum::new(ranks, model);
    for round in order.chunks(ranks.size()) {
        sum.add(model, round.get(ranks.rank()).map(|number| gradients(model, *number)), round.len()).unwrap();
    }
    let sum = sum.finish(model).unwrap();
    let bytes = |data: TensorData| data.as_bytes().to_vec();
    vec![
        sum.get::<1>(model.short.id).map(|sum| bytes(sum.into_data())),
        sum.get::<2>(model.long.id).map(|sum| bytes(sum.into_data())),
        sum.get::<1>(model.rare.id).map(|sum| bytes(sum.into_data())),
    ]
}

#[test]
fn gradients_are_summed_in_the_order_of_the_micro_batches_whatever_the_number_of_ranks() {
    for dtype in [FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        let model = three(dtype);
        for count in [1, 4, 6] {
            let order: Vec<usize> = (0..count).collect();
            let alone = sum(&Ranks::alone(), &model, &order);
            assert_eq!(alone.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, count > 1]);
            for size in [2, 3, 4, 7] {
                assert!(
                    on_ranks(size, |ranks| sum(ranks, &model, &order)).iter().all(|shared| *shared == alone),
                    "{dtype:?}, {count}, {size}"
                );
            }
            // Rank by rank the sum would be another one, so the order is tested.
            let by_rank: Vec<usize> = (0..2).flat_map(|rank| (rank..count).step_by(2)).collect();
            assert!(count == 1 || sum(&Ranks::alone(), &model, &by_rank) != alone, "{dtype:?}, {count}");
        }
        let negative_zero = sum(&Ranks::alone(), &model, &[0, 1]).pop().unwrap().unwrap();
        assert_eq!(negative_zero.iter().filter(|byte| **byte == 0x80).count(), 5, "the sign of zero is not tested");
    }
}
