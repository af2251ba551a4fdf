#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/model_file.h"
#include "engine/formats/tensor_index.h"
#include "engine/formats/weight_source.h"

/// Files of named tensors: weights in one file or in shards, head artefacts, token rankings.
namespace draftscope {

/// Opens a PyTorch checkpoint (.bin, .pt): the tensors of a saved state dict, memory-mapped. Its pickle is
/// read as data; everything except tensors, numbers, text and their containers is refused, and no code of the
/// file is run. A saved list of numbers becomes the tensor `ids`.
Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path);

/// Opens a safetensors file or a PyTorch checkpoint, chosen by its first bytes.
Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path);

/// Tensors of one or several files under one path, each under a name of its own.
class TensorSet final : public WeightSource {
  public:
    explicit TensorSet(std::string path) : path_(std::move(path)) {}

    /// Opens this set's path: a file, or an index NAME.index.json with the shards next to it.
    Status open(Notes& notes);
    /// Adds a tensor of `from` as `name`, and keeps its files open.
    void add(std::string name, const TensorSet& from, std::string_view stored);
    /// Returns the path of the file that holds a tensor of this set.
    const std::string& file_of(std::string_view name) const { return entries_.find(name)->file->path(); }

    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override;
    std::vector<std::string> names() const override { return entries_.names(); }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override;
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override;
    std::vector<const MappedFile*> files() const override;
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override;
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override;

  private:
    struct Entry {
        TensorInfo info;
        const WeightSource* file;
        const TensorInfo* stored;  ///< of the file
    };
    Status open_shards();
    Result<const WeightSource*> open_file(const std::string& file);

    std::string path_;
    std::vector<std::shared_ptr<const WeightSource>> files_;
    TensorIndex<Entry> entries_;
};

/// Returns the path of the first file of `names` in the folder, else of the first index, else "".
std::string find_tensor_file(const std::string& folder, std::span<const std::string_view> names);

}  // namespace draftscope
