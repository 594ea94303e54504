// The functions of CANN and of the driver that torch_npu's profiler calls. They have an
// order and no data: what a device did is not written. What they mean is documented
// with the CANN runtime API, "Profiling"; cann_runtime.c has the address.
#include <acl/acl.h>
#include <acl/acl_prof.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

// ---- CANN: initialized, then started once for each device
#define DEVICES 64
#define LONGEST_PATH 4096
#define LONGEST_SETTING 256

struct aclprofConfig {
  uint32_t count;
  uint32_t devices[DEVICES];
};

static int initialized;
static const aclprofConfig *started[DEVICES];

// No header of the wheel declares it.
aclError aclprofWarmup(const aclprofConfig *);

aclError aclprofInit(const char *folder, size_t length) {
  if (folder == NULL || length == 0 || length > LONGEST_PATH)
    return ACL_ERROR_INVALID_PARAM;
  if (initialized)
    return ACL_ERROR_REPEAT_INITIALIZE;
  initialized = 1;
  return ACL_SUCCESS;
}

// Ends what is still started.
aclError aclprofFinalize(void) {
  if (!initialized)
    return ACL_ERROR_PROF_NOT_RUN;
  memset(started, 0, sizeof started);
  initialized = 0;
  return ACL_SUCCESS;
}

aclprofConfig *aclprofCreateConfig(uint32_t *devices, uint32_t count,
                                   aclprofAicoreMetrics metrics,
                                   const aclprofAicoreEvents *events, uint64_t data) {
  (void)metrics, (void)data;
  uint32_t there;
  if (aclrtGetDeviceCount(&there) != ACL_SUCCESS || count > there || count > DEVICES)
    return NULL;
  if ((devices == NULL && count) || events != NULL)
    return NULL;
  aclprofConfig *config = calloc(1, sizeof *config);
  if (config == NULL)
    return NULL;
  for (; config->count < count; config->count++) {
    if (devices[config->count] >= there)
      return free(config), NULL;
    config->devices[config->count] = devices[config->count];
  }
  return config;
}

aclError aclprofDestroyConfig(const aclprofConfig *config) {
  if (config == NULL)
    return ACL_ERROR_INVALID_PARAM;
  free((void *)config);
  return ACL_SUCCESS;
}

aclError aclprofSetConfig(aclprofConfigType kind, const char *text, size_t length) {
  if (kind <= ACL_PROF_ARGS_MIN || kind >= ACL_PROF_ARGS_MAX || text == NULL ||
      length == 0 || length > LONGEST_SETTING)
    return ACL_ERROR_INVALID_PARAM;
  return initialized ? ACL_SUCCESS : ACL_ERROR_PROF_NOT_RUN;
}

static aclError may_start(const aclprofConfig *config) {
  if (config == NULL)
    return ACL_ERROR_INVALID_PARAM;
  if (!initialized)
    return ACL_ERROR_PROF_NOT_RUN;
  for (uint32_t i = 0; i < config->count; i++)
    if (started[config->devices[i]] != NULL)
      return ACL_ERROR_PROF_ALREADY_RUN;
  return ACL_SUCCESS;
}

aclError aclprofWarmup(const aclprofConfig *config) { return may_start(config); }

aclError aclprofStart(const aclprofConfig *config) {
  aclError error = may_start(config);
  for (uint32_t i = 0; error == ACL_SUCCESS && i < config->count; i++)
    started[config->devices[i]] = config;
  return error;
}

aclError aclprofStop(const aclprofConfig *config) {
  if (config == NULL)
    return ACL_ERROR_INVALID_PARAM;
  if (!initialized)
    return ACL_ERROR_PROF_NOT_RUN;
  for (uint32_t i = 0; i < config->count; i++) {
    const aclprofConfig *running = started[config->devices[i]];
    if (running != config)
      return running ? ACL_ERROR_INVALID_PROFILING_CONFIG : ACL_ERROR_PROF_NOT_RUN;
  }
  for (uint32_t i = 0; i < config->count; i++)
    started[config->devices[i]] = NULL;
  return ACL_SUCCESS;
}
