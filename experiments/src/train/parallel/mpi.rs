//! Processes that MPI has started.

use std::time::{Duration, Instant};

use heedful_host::exit::FAILURE_EXIT;
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::traits::{Communicator, CommunicatorCollectives};

use super::Collective;

/// Bytes that one process sends at once, or receives: MPI counts them in 32 bits with sign.
const MOST_AT_ONCE: usize = 1 << 30;
/// How long a process looks without a pause whether the others are there.
const IMPATIENT: Duration = Duration::from_millis(2);
/// The pause afterwards. MPI itself would compute while it waits, which takes the core from the process that it waits for where there are few.
const PAUSE: Duration = Duration::from_micros(200);

/// The processes of `MPI_COMM_WORLD`.
pub(crate) struct Mpi {
    universe: Universe,
    rank: usize,
    size: usize,
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.size)
    }
}

impl Mpi {
    /// Connects this process with those that were started with it; `None` if that cannot be done from several threads.
    pub(crate) fn start() -> Option<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)?;
        let world = universe.world();
        let number = |number: i32| usize::try_from(number).expect("ranks are not negative");
        let (rank, size) = (number(world.rank()), number(world.size()));
        (threading >= Threading::Serialized).then_some(Self { universe, rank, size })
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // The others would wait for ever.
        if std::thread::panicking() && self.size > 1 {
            eprintln!("error: rank {} of {} panics, which ends all", self.rank, self.size);
            self.universe.world().abort(i32::from(FAILURE_EXIT));
        }
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let world = self.universe.world();
        let (mut request, begun) = (world.immediate_barrier(), Instant::now());
        while let Err(unfinished) = request.test() {
            request = unfinished;
            if begun.elapsed() < IMPATIENT { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
        // To each rank: how long its message is, and how long the longest of all is.
        let longest = messages.iter().map(Vec::len).max().unwrap_or_default();
        let lengths: Vec<u64> = messages.iter().flat_map(|message| [message.len() as u64, longest as u64]).collect();
        let mut told = vec![0u64; lengths.len()];
        world.all_to_all_into(&lengths[..], &mut told[..]);
        let longest = told.iter().skip(1).step_by(2).max().map_or(0, |longest| *longest as usize);
        let lengths: Vec<usize> = told.iter().step_by(2).map(|length| *length as usize).collect();
        let mut received: Vec<Vec<u8>> = lengths.iter().map(|length| Vec::with_capacity(*length)).collect();
        let most = MOST_AT_ONCE / self.size;
        for begin in (0..longest).step_by(most) {
            let part = |length: usize| begin.min(length)..(begin + most).min(length);
            let sent: Vec<&[u8]> = messages.iter().map(|message| &message[part(message.len())]).collect();
            let (counts, places) = layout(sent.iter().map(|part| part.len()));
            let (told_counts, told_places) = layout(lengths.iter().map(|length| part(*length).len()));
            let sent = sent.concat();
            let mut buffer = vec![0u8; told_counts.iter().map(|count| *count as usize).sum()];
            let mut target = PartitionMut::new(&mut buffer[..], &told_counts[..], &told_places[..]);
            world.all_to_all_varcount_into(&Partition::new(&sent[..], &counts[..], &places[..]), &mut target);
            let mut rest = &buffer[..];
            for (message, count) in received.iter_mut().zip(&told_counts) {
                let (part, after) = rest.split_at(*count as usize);
                message.extend_from_slice(part);
                rest = after;
            }
        }
        received
    }
}

/// How long the parts of a buffer are, and where they begin.
fn layout(lengths: impl Iterator<Item = usize>) -> (Vec<i32>, Vec<i32>) {
    let mut place = 0;
    let place_of = |length: usize| {
        let length = i32::try_from(length).expect("a part is less than 2 GiB");
        place += length;
        (length, place - length)
    };
    lengths.map(place_of).unzip()
}
