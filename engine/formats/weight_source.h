#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/ops/random_values.h"
#include "kernels/packing.h"

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

/// The named tensors of a model, read as f32 rows. Reading is thread-safe. Rows of q and k projections are
/// returned in half-split (HF) order regardless of the file format.
class WeightSource {
  public:
    virtual ~WeightSource() = default;
    virtual const std::string& path() const = 0;
    virtual const TensorInfo* find(std::string_view name) const = 0;  ///< null if absent
    virtual std::vector<std::string> names() const = 0;
    /// Dequantises row `row` into `out`, which holds cols() floats. A 1-D tensor is one row.
    virtual void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const = 0;
    /// The mapped files that hold the tensors; empty for generated values.
    virtual std::vector<const MappedFile*> files() const { return {}; }
    /// The stored bytes of a tensor in a mapped file, encoded as info.type; empty without such a file.
    virtual std::span<const std::uint8_t> stored(const TensorInfo&) const { return {}; }
    /// The stored bytes of row `row`, which may be at another index than `row`; null if stored() is empty.
    virtual const std::uint8_t* stored_row(const TensorInfo&, std::int64_t) const { return nullptr; }
    /// Unpacks a row of 4-bit weights without decoding it to floats. Groups of 32 weights have a scale and a
    /// minimum (Q4_0, Q4_1, Q4_K). Returns false for other types. The buffers in `out` must fit the row.
    virtual bool read_int4_row(const TensorInfo&, std::int64_t, const kernels::Int4Row& /*out*/) const {
        return false;
    }
    /// How the values of a tensor are generated, for devices that do it themselves; nullopt if they are not.
    virtual std::optional<kernels::RandomValues> random_values(const TensorInfo&) const {
        return std::nullopt;
    }
    /// Reads all values of an integer tensor (rankings, id maps), in storage order. A missing tensor or
    /// another type is an error that names file and tensor.
    virtual Result<std::vector<std::int64_t>> read_integers(std::string_view name) const {
        return bad_input("{}: tensor '{}' holds no integers", path(), name);
    }
    /// A value of the file's metadata (safetensors' __metadata__); "" if absent.
    virtual std::string metadata(std::string_view) const { return {}; }
};

}  // namespace draftscope
