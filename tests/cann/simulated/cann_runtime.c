// The runtime functions of CANN that torch_npu calls, on host memory: device memory is
// host memory, and what has an order (streams, events, graphs) is left to one handler,
// written in Python. Each signature is checked by the compiler against the headers that
// the torch_npu wheel brings; what they mean is documented with the CANN runtime API:
// https://www.hiascend.com/document/detail/en/CANNCommunityEdition/900/API/runtimeapi/
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <acl/acl_prof.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the handler: calls that it answers, and how they reach it
// clang-format off
#define HANDLED(X)                                                                     \
  X(stream_create) X(stream_destroy) X(stream_query) X(stream_synchronize)             \
  X(device_synchronize) X(event_create) X(event_destroy) X(event_record)               \
  X(event_wait) X(event_reset) X(event_synchronize) X(event_query) X(copy_now) X(copy) \
  X(fill) X(host_function) X(free) X(capture_begin) X(capture_info) X(capture_end)     \
  X(capture_exchange_mode) X(graph_execute) X(graph_destroy) X(group_begin)            \
  X(group_end) X(update_begin) X(update_end) X(value_write) X(value_wait)
// clang-format on
#define NAME(name) #name " "
#define MEMBER(name) CALL_##name,
enum { HANDLED(MEMBER) };

typedef int (*handler_t)(int, uint64_t, uint64_t, uint64_t, uint64_t);
static handler_t handler;
static uint32_t device_count = 1;
static _Thread_local int32_t current_device = -1;
static size_t memory_total;
static atomic_size_t memory_used;
static char soc_name[64];
static char recent_error[16384];

const char *simulated_calls(void);
void simulated_start(handler_t, uint32_t, const char *, size_t);
size_t simulated_memory_used(void);
void simulated_set_error(const char *);
void simulated_missing(const char *);

const char *simulated_calls(void) { return HANDLED(NAME); }

void simulated_start(handler_t to, uint32_t devices, const char *soc, size_t memory) {
  handler = to;
  device_count = devices;
  memory_total = memory;
  snprintf(soc_name, sizeof soc_name, "%s", soc);
}

size_t simulated_memory_used(void) { return memory_used; }

void simulated_set_error(const char *text) {
  snprintf(recent_error, sizeof recent_error, "%s", text);
}

// Never an answer of zeros: a function without a body ends the process by its name.
void simulated_missing(const char *name) {
  fprintf(stderr, "simulated CANN: %s has no body here\n", name);
  abort();
}

static aclError handle(int call, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  if (handler == NULL)
    simulated_missing("the handler of streams, events and graphs");
  return handler(call, a, b, c, d);
}
#define TO(name, a, b, c, d)                                                           \
  handle(CALL_##name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d))

// ---- the process and its devices
aclError aclInit(const char *path) { return (void)path, ACL_SUCCESS; }
aclError aclFinalize(void) { return ACL_SUCCESS; }
const char *aclGetRecentErrMsg(void) { return recent_error; }
const char *aclrtGetSocName(void) { return soc_name; }

aclError aclrtGetDeviceCount(uint32_t *count) {
  *count = device_count;
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
  if (device < 0 || (uint32_t)device >= device_count)
    return ACL_ERROR_RT_INVALID_DEVICEID;
  current_device = device;
  return ACL_SUCCESS;
}

// A thread has no device until it sets one. torch_npu counts on the error: it enters a
// device among those to synchronize and to free only when it sets that itself.
aclError aclrtGetDevice(int32_t *device) {
  if (current_device < 0)
    return ACL_ERROR_RT_CONTEXT_NULL;
  *device = current_device;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) { return (void)device, ACL_SUCCESS; }
aclError aclrtSynchronizeDevice(void) { return TO(device_synchronize, 0, 0, 0, 0); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return TO(device_synchronize, timeout, 0, 0, 0);
}

// A context stands for its device; NULL is none.
aclError aclrtGetCurrentContext(aclrtContext *context) {
  if (current_device < 0)
    return ACL_ERROR_RT_CONTEXT_NULL;
  *context = (aclrtContext)(uintptr_t)(current_device + 1);
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return context ? aclrtSetDevice((int32_t)(uintptr_t)context - 1)
                 : ACL_ERROR_RT_CONTEXT_NULL;
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  if (flags != NULL)
    *flags = 0;
  *active = (uint32_t)device < device_count;
  return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  *can = device != peer;
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t *id) {
  *id = 1;
  return ACL_SUCCESS;
}

aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo info, int64_t *value) {
  (void)device, (void)info;
  *value = 20;
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceInfo(uint32_t device, aclrtDevAttr attribute, int64_t *value) {
  (void)device, (void)attribute;
  *value = 20;
  return ACL_SUCCESS;
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t *const logic) {
  *logic = user;
  return ACL_SUCCESS;
}

// ---- memory: a header before each block holds its size
#define ALIGNMENT 512

static aclError allocate(void **block, size_t bytes) {
  char *memory;
  if (memory_used + bytes > memory_total)
    return ACL_ERROR_RT_MEMORY_ALLOCATION;
  if (posix_memalign((void **)&memory, ALIGNMENT, bytes + ALIGNMENT) != 0)
    return ACL_ERROR_RT_MEMORY_ALLOCATION;
  *(size_t *)memory = bytes;
  memory_used += bytes;
  *block = memory + ALIGNMENT;
  return ACL_SUCCESS;
}

aclError aclrtMalloc(void **block, size_t bytes, aclrtMemMallocPolicy policy) {
  return (void)policy, allocate(block, bytes);
}

aclError aclrtMallocAlign32(void **block, size_t bytes, aclrtMemMallocPolicy policy) {
  return (void)policy, allocate(block, bytes);
}

aclError aclrtFree(void *block) {
  if (block == NULL)
    return ACL_ERROR_RT_PARAM_INVALID;
  size_t *header = (size_t *)((char *)block - ALIGNMENT);
  aclError error = handler ? TO(free, block, *header, 0, 0) : ACL_SUCCESS;
  if (error != ACL_SUCCESS)
    return error;
  memory_used -= *header;
  free(header);
  return ACL_SUCCESS;
}

aclError aclrtMallocHost(void **block, size_t bytes) {
  return posix_memalign(block, 64, bytes ? bytes : 64) ? ACL_ERROR_RT_MEMORY_ALLOCATION
                                                       : ACL_SUCCESS;
}

aclError aclrtMallocHostWithCfg(void **block, uint64_t bytes, aclrtMallocConfig *how) {
  return (void)how, aclrtMallocHost(block, bytes);
}

aclError aclrtFreeHost(void *block) {
  free(block);
  return ACL_SUCCESS;
}

aclError aclrtHostRegister(void *host, uint64_t bytes, aclrtHostRegisterType type,
                           void **device) {
  (void)bytes, (void)type;
  *device = host;
  return ACL_SUCCESS;
}

aclError aclrtHostUnregister(void *host) { return (void)host, ACL_SUCCESS; }

aclError aclrtGetMemInfo(aclrtMemAttr attribute, size_t *unused, size_t *total) {
  (void)attribute;
  *total = memory_total;
  *unused = memory_total - memory_used;
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes,
                     aclrtMemcpyKind kind) {
  (void)kind;
  if (bytes > room)
    return ACL_ERROR_RT_PARAM_INVALID;
  aclError error = TO(copy_now, 0, 0, 0, 0);
  if (error == ACL_SUCCESS)
    memmove(to, from, bytes);
  return error;
}

aclError aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  (void)kind;
  return bytes > room ? ACL_ERROR_RT_PARAM_INVALID : TO(copy, to, from, bytes, stream);
}

aclError aclrtMemset(void *block, size_t room, int32_t value, size_t bytes) {
  if (bytes > room)
    return ACL_ERROR_RT_PARAM_INVALID;
  aclError error = TO(copy_now, 0, 0, 0, 0);
  if (error == ACL_SUCCESS)
    memset(block, value, bytes);
  return error;
}

aclError aclrtMemsetAsync(void *block, size_t room, int32_t value, size_t bytes,
                          aclrtStream stream) {
  return bytes > room ? ACL_ERROR_RT_PARAM_INVALID
                      : TO(fill, block, value, bytes, stream);
}

// ---- streams, events, values in memory
aclError aclrtCreateStream(aclrtStream *stream) {
  return TO(stream_create, stream, 0, 0, 0);
}

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority,
                                     uint32_t flag) {
  return (void)priority, (void)flag, TO(stream_create, stream, 0, 0, 0);
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return TO(stream_destroy, stream, 0, 0, 0);
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return TO(stream_destroy, stream, 1, 0, 0);
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return TO(stream_synchronize, stream, 0, 0, 0);
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return TO(stream_synchronize, stream, timeout, 0, 0);
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
  return TO(stream_query, stream, status, 0, 0);
}

// Handles are small numbers from the handler.
aclError aclrtStreamGetId(aclrtStream stream, int32_t *id) {
  *id = (int32_t)(uintptr_t)stream;
  return ACL_SUCCESS;
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) {
  return TO(event_create, event, flag, 0, 0);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
  return TO(event_create, event, flag, 0, 0);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return TO(event_destroy, event, 0, 0, 0);
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return TO(event_record, event, stream, 0, 0);
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return TO(event_wait, event, stream, 0, 0);
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return TO(event_reset, event, stream, 0, 0);
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return TO(event_synchronize, event, 0, 0, 0);
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
  return TO(event_query, event, status, 0, 0);
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
  (void)event;
  *status = ACL_EVENT_WAIT_STATUS_COMPLETE;
  return ACL_SUCCESS;
}

// Time is not simulated.
aclError aclrtEventElapsedTime(float *milliseconds, aclrtEvent start, aclrtEvent end) {
  (void)start, (void)end;
  *milliseconds = 0;
  return ACL_SUCCESS;
}

aclError aclrtValueWrite(void *address, uint64_t value, uint32_t flag,
                         aclrtStream stream) {
  return TO(value_write, address, value, flag, stream);
}

aclError aclrtValueWait(void *address, uint64_t value, uint32_t flag,
                        aclrtStream stream) {
  return TO(value_wait, address, value, flag, stream);
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function,
                             void *argument) {
  return TO(host_function, function, argument, stream, 0);
}

// ---- graphs
aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return TO(capture_begin, stream, mode, 0, 0);
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status,
                                aclmdlRI *graph) {
  return TO(capture_info, stream, status, graph, 0);
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *graph) {
  return TO(capture_end, stream, graph, 0, 0);
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
  return TO(capture_exchange_mode, mode, 0, 0, 0);
}

aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream stream) {
  return TO(graph_execute, graph, stream, 0, 0);
}

aclError aclmdlRIDestroy(aclmdlRI graph) { return TO(graph_destroy, graph, 0, 0, 0); }

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  return TO(group_begin, stream, 0, 0, 0);
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *group) {
  return TO(group_end, stream, group, 0, 0);
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp group) {
  return TO(update_begin, stream, group, 0, 0);
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  return TO(update_end, stream, 0, 0, 0);
}

// ---- the log of CANN and torch_npu, for who asks for it
void aclAppLog(aclLogLevel level, const char *function, const char *file, uint32_t line,
               const char *format, ...) {
  if (getenv("SIMULATED_CANN_LOG") == NULL)
    return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%d %s:%u %s: ", (int)level, file, line, function);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

// ---- settings that change nothing here
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return (void)mode, ACL_SUCCESS;
}
aclError aclrtSetOpExecuteTimeOut(uint32_t seconds) {
  return (void)seconds, ACL_SUCCESS;
}
aclError aclrtSetOpWaitTimeout(uint32_t seconds) { return (void)seconds, ACL_SUCCESS; }
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return (void)stream, (void)mode, ACL_SUCCESS;
}
aclError aclSetCompileopt(aclCompileOpt option, const char *value) {
  return (void)option, (void)value, ACL_SUCCESS;
}
size_t aclGetCompileoptSize(aclCompileOpt option) { return (void)option, 64; }
aclError aclGetCompileopt(aclCompileOpt option, char *value, size_t size) {
  const char *set = option == ACL_PRECISION_MODE ? "allow_fp32_to_fp16" : "disable";
  snprintf(value, size, "%s", set);
  return ACL_SUCCESS;
}

#define OPTIONS 16
static int64_t options[OPTIONS];

aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) {
  if ((unsigned)option >= OPTIONS)
    return ACL_ERROR_RT_PARAM_INVALID;
  options[option] = value;
  return ACL_SUCCESS;
}

aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t *value) {
  if ((unsigned)option >= OPTIONS)
    return ACL_ERROR_RT_PARAM_INVALID;
  *value = options[option];
  return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) {
  return aclrtSetSysParamOpt(option, value);
}
