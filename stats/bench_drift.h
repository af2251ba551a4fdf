#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stats/bench_table.h"
#include "stats/drift.h"

/// Detects whether the machine's speed changed between methods and blocks of a bench. It compares the
/// verification times of equal trees (stats/drift.h).
namespace draftscope {

/// Verification times compared between methods and between blocks.
struct BenchDrift {
    /// Two methods, compared over the conversations that both decoded.
    struct Methods {
        std::size_t a = 0, b = 0;
        MachineControl control;
    };
    std::vector<Methods> methods;  ///< pairs of methods that verified equal trees
    /// Blocks of one method. Values are the verification time per round of a block / of all blocks, by shape.
    struct Blocks {
        std::size_t method = 0;
        double low = 1, high = 1;
    };
    std::vector<Blocks> blocks;   ///< methods with at least two blocks
    std::size_t block_count = 0;  ///< per repetition
    std::size_t repetitions = 0;
};
BenchDrift bench_drift(const BenchSamples& samples, const BootstrapOptions& options = {});

/// Returns the warnings for the reader of the table, worst first; empty on a steady machine. `names` are the
/// methods' names.
std::vector<std::string> drift_warnings(const BenchDrift& drift, std::span<const std::string> names);

}  // namespace draftscope
