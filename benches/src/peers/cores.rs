//! Threads on cores of their own.
//!
//! On a virtual machine the scheduler often leaves two threads of a process on one core for tens of milliseconds after both have slept, as all do between runs.
//! A run of 18 ms then takes 36 by chance. Threads that are bound to a core each cannot meet there.

use core_affinity::CoreId;

/// The cores that this process may run on, if there are as many as `threads`: one for each.
pub fn one_for_each(threads: usize) -> Option<Vec<CoreId>> {
    core_affinity::get_core_ids().filter(|cores| cores.len() == threads)
}

/// Binds each of the threads that compute to a core of its own, where there are as many threads as cores and the system allows it. Elsewhere it does nothing.
pub fn bind_workers() {
    let Some(cores) = one_for_each(rayon::current_num_threads()) else { return };
    rayon::broadcast(|worker| core_affinity::set_for_current(cores[worker.index()]));
}

/// What binds the threads of OpenMP, with which PyTorch computes, where there are as many threads as cores.
pub fn bind_open_mp(threads: usize) -> &'static [(&'static str, &'static str)] {
    match one_for_each(threads) {
        Some(_) => &[("OMP_PROC_BIND", "true"), ("OMP_PLACES", "cores")],
        None => &[],
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rayon::{ThreadPoolBuilder, broadcast};

    /// The cores that each thread of a pool may run on after [`bind_workers`].
    fn after_binding(threads: usize) -> Vec<Vec<usize>> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let allowed = |_: rayon::BroadcastContext| core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
        pool.install(|| {
            bind_workers();
            broadcast(allowed)
        })
    }

    #[test]
    fn as_many_threads_as_cores_have_one_each() {
        let all: Vec<usize> = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
        let one_each: Vec<Vec<usize>> = all.iter().map(|&core| vec![core]).collect();
        assert_eq!(after_binding(all.len()), one_each);
        assert!(!bind_open_mp(all.len()).is_empty());
    }

    #[test]
    fn more_threads_than_cores_stay_where_the_scheduler_puts_them() {
        let all: Vec<usize> = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
        assert_eq!(after_binding(all.len() + 1), vec![all.clone(); all.len() + 1]);
        assert!(bind_open_mp(all.len() + 1).is_empty());
    }
}
