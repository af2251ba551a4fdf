#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/weights/file_read_ahead.h"
#include "engine/weights/weight_cache.h"
#include "engine/weights/weight_packing.h"
#include "kernels/matrix.h"

namespace draftscope {

/// A packed matrix of a model: the tensors stacked in it and its number of columns.
struct PlannedMatrix {
    std::string name;  ///< name in a weight cache
    std::vector<StackedTensor> parts;
    int cols = 0;
    std::string reason;  ///< source of the shapes, for messages
    kernels::Precision precision = kernels::Precision::f32;
    int rows() const;
};

/// Statistics and messages of a load, for display.
struct LoadReport {
    std::uint64_t bytes = 0;            ///< packed weights in memory
    std::uint64_t from_cache = 0;       ///< part of `bytes` read from the weight cache
    std::string cache;                  ///< the file read or written; "" = none
    std::vector<std::string> messages;  ///< why the cache was not used or written
};

/// Loads the matrices of a plan in order, from the weight cache or by packing the source. The source is read
/// ahead of the packing. If a cache is enabled but missing, it is written during the load.
class WeightLoader {
  public:
    WeightLoader(kernels::Backend& backend, kernels::Precision precision, const WeightSource& source,
                 std::vector<PlannedMatrix> plan, const WeightCacheOptions& cache);

    /// Loads the next matrix.
    Result<kernels::Matrix> next();
    /// Call after the last matrix; completes a cache that was written.
    LoadReport finish();
    bool writing() const { return writer_ != nullptr; }
    /// The activity of next(), for a progress line.
    const char* activity() const {
        return reader_ != nullptr ? "reading" : writing() ? "packing and caching" : "packing";
    }

  private:
    void open_cache(const WeightCacheOptions& cache);
    /// Starts reading the source ahead of next().
    void read_ahead();
    Result<kernels::Matrix> pack(const PlannedMatrix& planned);

    kernels::Backend& backend_;
    const kernels::Precision precision_;
    const WeightSource& source_;
    const std::vector<PlannedMatrix> plan_;
    std::size_t next_ = 0;
    std::vector<std::size_t> source_ranges_;  ///< ranges of the source read up to and including matrix i
    std::unique_ptr<FileReadAhead> ahead_;
    std::unique_ptr<WeightCacheReader> reader_;
    std::unique_ptr<WeightCacheWriter> writer_;
    LoadReport report_;
};

/// Candidate paths for the weight cache of `model`, best first.
std::vector<std::string> weight_cache_paths(const std::string& model, kernels::Precision precision,
                                            const WeightCacheOptions& options);

}  // namespace draftscope
