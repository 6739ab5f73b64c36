// Asynchronous copies to shared memory: PTX's cp.async.
#pragma once

#if !defined(__HIP_PLATFORM_AMD__)
// Copies 16 bytes, of which the first `bytes` are read and the others are zeros. The copy completes when the thread waits for it, which is
// the latest possible time. Until then the destination is invalid: a thread that reads it sees garbage or has a race with this copy.
static inline void assay_cp_async_16(void *to, const void *from, unsigned bytes) {
    if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16) {
        assay_trap("cp.async: an address is no multiple of 16 bytes");
    }
    if (!assay_is_shared(to)) assay_trap("cp.async: the copy does not go to shared memory");
    for (int i = 0; i < 4; i++) static_cast<unsigned *>(to)[i] = 0xffffffffu;
    assay_copy_later(to, from, bytes);
}

static inline void assay_cp_async_wait_all() {
    void *to;
    const void *from;
    unsigned bytes;
    while (assay_copy_due(&to, &from, &bytes)) {
        for (unsigned i = 0; i < 4; i++) {
            static_cast<unsigned *>(to)[i] = 4 * i < bytes ? static_cast<const unsigned *>(from)[i] : 0;
        }
    }
}
#endif
