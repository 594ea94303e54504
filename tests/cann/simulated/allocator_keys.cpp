// A CUDA build of torch, which is what vLLM pins, has registered CUDA's allocator keys
// by the time torch_npu registers its own, and torch aborts on one that both have. This
// runs in between, as torch_npu needs this library, and leaves torch's base keys only.
#include <dlfcn.h>

#include <string>
#include <unordered_set>

namespace {

using Keys = std::unordered_set<std::string>;

// The function-local set of AcceleratorAllocatorConfig::getMutableKeys.
constexpr const char *kKeys = "_ZZN3c1016CachingAllocator26AcceleratorAllocatorConfig14"
                              "getMutableKeysB5cxx11EvE4keys";

__attribute__((constructor)) void leave_base_keys() {
  void *c10 = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  auto *keys = c10 ? static_cast<Keys *>(dlsym(c10, kKeys)) : nullptr;
  if (keys == nullptr)
    return;
  static const Keys base{"large_segment_size_mb",        "max_split_size_mb",
                         "max_non_split_rounding_mb",    "garbage_collection_threshold",
                         "roundup_power2_divisions",     "expandable_segments",
                         "pinned_use_background_threads"};
  for (auto key = keys->begin(); key != keys->end();)
    key = base.count(*key) ? std::next(key) : keys->erase(key);
}

} // namespace
