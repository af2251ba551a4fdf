#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/direct_reader.h"
#include "engine/model/read_ahead.h"
#include "engine/model/weight_cache.h"
#include "engine/model/weight_packing.h"
#include "kernels/matrix.h"

namespace draftscope {

/// One packed matrix of a model: the tensors stacked in it and its inputs.
struct PlannedMatrix {
    std::string name;  ///< in a weight cache
    std::vector<StackedTensor> parts;
    int cols = 0;
    std::string reason;  ///< what the shapes follow from, for messages
    int rows() const;
};

/// What a load did, for the person who waited.
struct LoadReport {
    std::uint64_t bytes = 0;        ///< packed weights in memory
    std::uint64_t from_cache = 0;   ///< of those, read from the weight cache
    bool past_cache = false;        ///< the model's files were read past the system's cache
    std::string cache;              ///< the file read or written; "" = none
    std::vector<std::string> said;  ///< what kept the cache from being used or written
};

/// Makes the matrices of a plan in its order, each from the weight cache or packed from the source, which is
/// read ahead of the packing. Where the cache is wanted and has nothing, it is written on the way.
class WeightLoader {
  public:
    WeightLoader(kernels::Exec& exec, kernels::Precision precision, const WeightSource& source,
                 std::vector<PlannedMatrix> plan, const WeightCacheOptions& cache);

    /// The next matrix.
    Result<kernels::Matrix> next();
    /// After the last: finishes a cache that was written.
    LoadReport finish();
    bool writing() const { return writer_ != nullptr; }
    /// What next() does, as a progress line begins.
    const char* doing() const {
        return reader_ != nullptr ? "reading" : writing() ? "packing and keeping" : "packing";
    }

  private:
    void open_cache(const WeightCacheOptions& cache);
    /// Begins to bring what next() will pack into memory.
    void read_ahead();
    /// Is what the model's files hold of `groups` better read past the system's cache?
    bool past_cache(std::span<const DirectReader::Group> groups) const;
    Result<kernels::Matrix> pack(const PlannedMatrix& planned);

    kernels::Exec& exec_;
    const kernels::Precision precision_;
    const WeightSource& source_;
    const std::vector<PlannedMatrix> plan_;
    std::size_t next_ = 0;
    const std::optional<bool> past_cache_;
    std::unique_ptr<DirectReader> direct_;
    std::vector<std::size_t> stretches_;  ///< of the source, read up to and including matrix i
    std::unique_ptr<ReadAhead> ahead_;    ///< where `direct_` is not
    std::unique_ptr<WeightCacheReader> reader_;
    std::unique_ptr<WeightCacheWriter> writer_;
    LoadReport report_;
};

/// Where the weight cache of `model` may lie, best first.
std::vector<std::string> weight_cache_places(const std::string& model, kernels::Precision precision,
                                             const WeightCacheOptions& options);

}  // namespace draftscope
