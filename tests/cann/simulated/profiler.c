// The functions of CANN and of the driver that torch_npu's profiler calls. They have an
// order and no data: what a device did is not written. What they mean is documented
// with the CANN runtime API, "Profiling"; cann_runtime.c has the address.
#include <acl/acl.h>
#include <acl/acl_prof.h>
#include <stdint.h>

void simulated_missing(const char *);

// ---- the driver: no header of the wheel declares it
int32_t halGetAPIVersion(int32_t *);
int32_t halGetDeviceInfo(uint32_t, int32_t, int32_t, int64_t *);

enum { DRIVER_OK = 0, DRIVER_NOT_SUPPORTED = 0xfffe };
// The first version whose counter of the host torch_npu trusts.
#define DRIVER_VERSION 0x071905
#define FREQUENCY_OF_THE_HOST 24

int32_t halGetAPIVersion(int32_t *version) {
  *version = DRIVER_VERSION;
  return DRIVER_OK;
}

// Without a frequency torch_npu's stamps are the host's monotonic clock.
int32_t halGetDeviceInfo(uint32_t device, int32_t module, int32_t kind,
                         int64_t *value) {
  (void)device, (void)module, (void)value;
  if (kind != FREQUENCY_OF_THE_HOST)
    simulated_missing("halGetDeviceInfo of anything but the host's frequency");
  return DRIVER_NOT_SUPPORTED;
}
