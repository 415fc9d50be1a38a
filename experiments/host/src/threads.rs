//! Running where CPUs compute.

/// Runs on one of the threads that compute on a CPU, as many as `RAYON_NUM_THREADS` says. From any other thread each piece of work is handed to them and
/// waited for, which takes longer than the work itself where that is small.
pub fn among_workers<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| run())
}
