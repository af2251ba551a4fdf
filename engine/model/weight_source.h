#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

class MappedFile;

struct TensorInfo {
    std::string name;
    std::string type;                 ///< "F32", "Q4_1", "BF16", ...
    std::vector<std::int64_t> shape;  ///< row-major, slowest first: [N, K] for a matrix
    std::uint64_t bytes = 0;
    std::int64_t rows() const { return shape.empty() ? 0 : (shape.size() == 1 ? 1 : shape.front()); }
    std::int64_t cols() const { return shape.empty() ? 0 : shape.back(); }
};

/// Named tensors of a memory-mapped model file, read as f32 rows. Reading is thread-safe.
/// Rows of q/k projections come in half-split (HF) order whatever the file stores.
class WeightSource {
  public:
    virtual ~WeightSource() = default;
    virtual const std::string& path() const = 0;
    virtual const TensorInfo* find(std::string_view name) const = 0;  ///< null when absent
    virtual std::vector<std::string> names() const = 0;
    /// Dequantises row `row` (all of a 1-D tensor is row 0) into `out`, which holds cols() floats.
    virtual void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const = 0;
    /// The files that hold the tensors; none where values are made or come from elsewhere.
    virtual std::vector<const MappedFile*> files() const { return {}; }
    /// A tensor's bytes as they lie in a mapped file, info.type saying how; empty where there is no such
    /// file.
    virtual std::span<const std::uint8_t> stored(const TensorInfo&) const { return {}; }
    /// Row `row` there, where the file may keep it in another place than row order has it; null where
    /// stored() is empty.
    virtual const std::uint8_t* stored_row(const TensorInfo&, std::int64_t) const { return nullptr; }
    /// read_row() of a row whose stored bytes were brought elsewhere; for tensors that have stored().
    virtual void decode_row(const TensorInfo&, const std::uint8_t* /*bytes*/, float* /*out*/) const {
        assert(false && "a source with stored() decodes what it stores");
    }
    /// All values of an integer tensor (rankings, id maps), exactly and in storage order. An absent tensor
    /// and one of another type are errors that name file and tensor.
    virtual Result<std::vector<std::int64_t>> read_integers(std::string_view name) const {
        return bad_input("{}: tensor '{}' holds no integers", path(), name);
    }
    /// What the file says about itself (safetensors' __metadata__); "" when it does not say.
    virtual std::string metadata(std::string_view) const { return {}; }
};

}  // namespace draftscope
