#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/bench_table.h"
#include "profiler/drift.h"

/// Whether the machine was the same for all methods and blocks of a bench, by the verification of equal trees
/// (profiler/drift.h).
namespace draftscope {

struct BenchDrift {
    /// Two methods over the conversations that both decoded.
    struct Methods {
        std::size_t a = 0, b = 0;
        MachineControl control;
    };
    std::vector<Methods> methods;  ///< pairs that verified equal trees, by method
    /// Blocks of one method: verification per round of a block / of all blocks, shape by shape.
    struct Blocks {
        std::size_t method = 0;
        double low = 1, high = 1;
    };
    std::vector<Blocks> blocks;   ///< of methods with two blocks or more
    std::size_t block_count = 0;  ///< of a repetition
    std::size_t repetitions = 0;
};
BenchDrift bench_drift(const BenchSamples& samples, const BootstrapOptions& options = {});

/// What of it the reader of the table has to know, worst first; empty on a steady machine. `names` are the
/// methods'.
std::vector<std::string> drift_warnings(const BenchDrift& drift, std::span<const std::string> names);

}  // namespace draftscope
