#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/formats/model_file.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Returns the bytes of `file`'s packed weights, to within a few per cent.
std::uint64_t packed_bytes(const ModelFile& file, kernels::Precision precision);

/// Returns an error if a drafter's weights exceed the available memory.
Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision);

/// Returns the memory available without swapping, within the process's control group; nullopt if the system
/// does not report it. `root` is where /proc and /sys are.
std::optional<std::uint64_t> available_memory(const std::string& root = "");
/// Returns the available memory as errors name it: "2.0 GiB of memory are available".
std::string available_text(std::uint64_t available);

/// Returns an error if the packed weights of `file` and the rotation angles of `positions` do not fit into
/// `available`.
Status check_memory(const ModelFile& file, kernels::Precision precision,
                    std::optional<std::uint64_t> available, int positions = 0);

/// Returns an error if a draft model's packed weights exceed `available`. The target's take `target_bytes`.
/// `on_host`: in the memory of the CPU.
Status check_draft_memory(const ModelFile& file, kernels::Precision precision, std::uint64_t target_bytes,
                          std::optional<std::uint64_t> available, bool on_host);

}  // namespace draftscope
