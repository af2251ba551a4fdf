#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/formats/tensor_index.h"
#include "engine/formats/weight_source.h"

namespace draftscope {

/// An element type of plain tensors; `name` is safetensors' name.
struct DataType {
    std::string_view name;
    std::uint64_t bytes;
    void (*floats)(const std::uint8_t*, std::int64_t, float*);
    void (*integers)(const std::uint8_t*, std::int64_t, std::int64_t*);  ///< null: not an integer type
};
const DataType* find_data_type(std::string_view name);  ///< null if this version does not read it

/// Row-major tensors of plain element types in a mapped file. Base of the safetensors and PyTorch readers.
class MappedTensors : public WeightSource {
  public:
    explicit MappedTensors(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

    const std::string& path() const override { return file_->path(); }
    const TensorInfo* find(std::string_view name) const override;
    std::vector<std::string> names() const override { return entries_.names(); }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override;
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override;
    std::string metadata(std::string_view key) const override;
    std::vector<const MappedFile*> files() const override { return {file_.get()}; }
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override;
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override;

  protected:
    const MappedFile& file() const { return *file_; }
    /// Returns the bytes of a tensor of `shape`; nullopt on overflow. Extents must not be negative. An empty
    /// shape becomes [1].
    static std::optional<std::uint64_t> tensor_bytes(const DataType& type, std::vector<std::int64_t>& shape);
    /// Adds a tensor; returns false if its name is taken. `data` holds info.bytes bytes and outlives this
    /// object.
    bool add(TensorInfo info, const DataType& type, const std::uint8_t* data);
    void add_metadata(std::string key, std::string text) {
        metadata_.emplace(std::move(key), std::move(text));
    }

  private:
    struct Entry {
        TensorInfo info;
        const DataType* type;
        const std::uint8_t* data;
    };
    std::shared_ptr<const MappedFile> file_;
    TensorIndex<Entry> entries_;
    std::map<std::string, std::string, std::less<>> metadata_;
};

}  // namespace draftscope
