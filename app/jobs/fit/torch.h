#pragma once

#include <string>

#include "base/job_hooks.h"
#include "engine/fit/training.h"

/// Trains heads with PyTorch: runs tools/train_drafter.py and exchanges files with it.
namespace draftscope {

/// A Python that has PyTorch.
struct Torch {
    std::string python;
    std::string script;  ///< train_drafter.py
};

/// Finds the Python to train with: `python`, or that of tools/with_torch.sh, or python3. One without a
/// recent PyTorch, and a missing script, are bad_input with what to do.
Result<Torch> find_torch(const std::string& python);

/// Where and on what a training runs.
struct TorchRun {
    std::string folder;           ///< scratch; keeps the last epoch's checkpoint of an interrupted training
    std::string device = "auto";  ///< "cpu", "cuda", or "auto": a GPU if there is one
    int threads = 0;              ///< 0 = as many as PyTorch takes
};

/// Trains and returns the parameters. Continues from a checkpoint of the same data in the folder.
Result<fit::Trained> train_with_torch(const Torch& torch, const TorchRun& run, const fit::TrainingData& data,
                                      const JobHooks& hooks);

}  // namespace draftscope
