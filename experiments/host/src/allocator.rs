//! Keeping freed memory for the next training step.
//!
//! The C library of most Linux systems returns large blocks to the kernel as soon as they are freed. A training step on a CPU allocates and frees the same
//! hundreds of megabytes as the step before, so it would wait for the kernel to map and clear them again and again: with freed memory kept,
//! a translation step on one core took a quarter less time. All threads share one arena, since glibc limits the heaps of all other
//! arenas to 64 MiB and returns larger blocks to the kernel.

/// Makes the allocator keep what is freed. Does nothing where the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const LARGEST: libc::c_int = libc::c_int::MAX;
        #[allow(unsafe_code, reason = "mallopt has no safe wrapper; it takes two integers and touches only the allocator's own settings")]
        // SAFETY: mallopt may be called at any time; it reads its arguments and nothing else of ours.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGEST);
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Gives freed memory back to the system, also after [`keep_freed_memory`]. Does nothing where the C library is not glibc.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code, reason = "malloc_trim has no safe wrapper; it takes an integer and touches only what nobody uses")]
    // SAFETY: malloc_trim may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
