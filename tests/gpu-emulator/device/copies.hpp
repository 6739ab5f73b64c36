// Copies to shared memory that go on while a thread does: PTX's cp.async.
#pragma once

#if !defined(__HIP_PLATFORM_AMD__)
// Of 16 bytes, of which the first `bytes` are read and the others are zeros. They arrive when the thread waits for them, which is as
// late as they may. From now on the place is nobody's: whoever reads it still, or already, finds nonsense or races with this.
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
