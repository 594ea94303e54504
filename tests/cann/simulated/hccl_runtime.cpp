// HCCL's functions that torch_npu calls, each handed to one handler, written in Python,
// as an array of its arguments. C++ as the header of the torch_npu wheel is no C; it
// checks each signature. What they mean is documented with the HCCL API:
// https://www.hiascend.com/document/detail/en/canncommercial/850/API/hcclapiref/
#include <hccl/hccl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// ---- the handler: calls that it answers, and how they reach it
// clang-format off
#define HANDLED(X)                                                                     \
  X(root_info) X(comm_init) X(comm_destroy) X(comm_name) X(all_reduce) X(reduce)       \
  X(all_gather) X(reduce_scatter) X(broadcast) X(scatter) X(all_to_all)                \
  X(all_to_all_v) X(send) X(recv)
// clang-format on
#define NAME(name) #name " "
#define MEMBER(name) CALL_##name,
enum { HANDLED(MEMBER) };

using handler_t = int (*)(int, const uint64_t *);

extern "C" {

const char *simulated_hccl_calls(void);
void simulated_hccl_start(handler_t);
void simulated_missing(const char *);

static handler_t handler;

const char *simulated_hccl_calls(void) { return HANDLED(NAME); }
void simulated_hccl_start(handler_t to) { handler = to; }

} // extern "C"

namespace {

template <typename T> uint64_t word(T *value) { return (uintptr_t)value; }
template <typename T> uint64_t word(T value) { return (uint64_t)value; }

template <typename... T> HcclResult handle(int call, T... arguments) {
  if (handler == nullptr)
    simulated_missing("the handler of collectives");
  const uint64_t words[] = {word(arguments)...};
  return (HcclResult)handler(call, words);
}

} // namespace
#define TO(name, ...) handle(CALL_##name, __VA_ARGS__)

extern "C" {

// ---- communicators
HcclResult HcclGetRootInfo(HcclRootInfo *info) { return TO(root_info, info->internal); }

HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo *info, uint32_t rank,
                                HcclComm *comm) {
  return TO(comm_init, ranks, info->internal, rank, "", comm);
}

HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo *info,
                                      uint32_t rank, const HcclCommConfig *config,
                                      HcclComm *comm) {
  return TO(comm_init, ranks, info->internal, rank, config->hcclCommName, comm);
}

HcclResult HcclCommDestroy(HcclComm comm) { return TO(comm_destroy, comm); }

HcclResult HcclGetCommName(HcclComm comm, char *name) {
  return TO(comm_name, comm, name, COMM_NAME_MAX_LENGTH);
}

// A collective that failed is reported by its stream, as other tasks are.
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *error) {
  (void)comm;
  *error = HCCL_SUCCESS;
  return HCCL_SUCCESS;
}

uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }

// Sums are always taken in the order of the ranks.
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue value) {
  return (void)config, (void)value, HCCL_SUCCESS;
}

// ---- collectives
HcclResult HcclAllReduce(void *from, void *to, uint64_t count, HcclDataType type,
                         HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return TO(all_reduce, from, to, count, type, op, comm, stream);
}

HcclResult HcclReduce(void *from, void *to, uint64_t count, HcclDataType type,
                      HcclReduceOp op, uint32_t root, HcclComm comm,
                      aclrtStream stream) {
  return TO(reduce, from, to, count, type, op, root, comm, stream);
}

HcclResult HcclAllGather(void *from, void *to, uint64_t count, HcclDataType type,
                         HcclComm comm, aclrtStream stream) {
  return TO(all_gather, from, to, count, type, comm, stream);
}

HcclResult HcclReduceScatter(void *from, void *to, uint64_t count, HcclDataType type,
                             HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return TO(reduce_scatter, from, to, count, type, op, comm, stream);
}

HcclResult HcclBroadcast(void *buffer, uint64_t count, HcclDataType type, uint32_t root,
                         HcclComm comm, aclrtStream stream) {
  return TO(broadcast, buffer, count, type, root, comm, stream);
}

HcclResult HcclScatter(void *from, void *to, uint64_t count, HcclDataType type,
                       uint32_t root, HcclComm comm, aclrtStream stream) {
  return TO(scatter, from, to, count, type, root, comm, stream);
}

HcclResult HcclAlltoAll(const void *from, uint64_t send, HcclDataType send_type,
                        const void *to, uint64_t receive, HcclDataType receive_type,
                        HcclComm comm, aclrtStream stream) {
  return TO(all_to_all, from, send, send_type, to, receive, receive_type, comm, stream);
}

HcclResult HcclAlltoAllV(const void *from, const void *send, const void *send_at,
                         HcclDataType send_type, const void *to, const void *receive,
                         const void *receive_at, HcclDataType receive_type,
                         HcclComm comm, aclrtStream stream) {
  return TO(all_to_all_v, from, send, send_at, send_type, to, receive, receive_at,
            receive_type, comm, stream);
}

HcclResult HcclSend(void *from, uint64_t count, HcclDataType type, uint32_t rank,
                    HcclComm comm, aclrtStream stream) {
  return TO(send, from, count, type, rank, comm, stream);
}

HcclResult HcclRecv(void *to, uint64_t count, HcclDataType type, uint32_t rank,
                    HcclComm comm, aclrtStream stream) {
  return TO(recv, to, count, type, rank, comm, stream);
}

} // extern "C"
