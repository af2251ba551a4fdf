#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/dequant.h"
#include "engine/formats/model_file.h"
#include "engine/formats/weight_source.h"

/// Files of named tensors: weights in one file or in shards, head artefacts, token rankings.
namespace draftscope {

/// A tensor of a mapped file, or a generated one.
struct StoredTensor {
    TensorInfo info;
    const TensorType* type = nullptr;  ///< never null; always has a decoder
    const std::uint8_t* data =
        nullptr;                       ///< info.bytes bytes, possibly unaligned; null = generated or cut off
    const MappedFile* file = nullptr;  ///< of a mapped tensor
    int interleaved = 0;  ///< width of heads whose halves are interleaved in the stored rows; 0 = none
    kernels::RandomValues random = {};  ///< of a generated tensor; without spread, all values are 1
};

/// Tensors of one or several files under one path, each under a name of its own. The readers of the formats
/// fill it.
class TensorFile final : public WeightSource {
  public:
    explicit TensorFile(std::string path) : path_(std::move(path)) {}
    /// Keeps `file` open.
    explicit TensorFile(std::shared_ptr<const MappedFile> file) : path_(file->path()) {
        files_.push_back(std::move(file));
    }

    /// Opens this object's path: a safetensors file, a PyTorch checkpoint, or an index NAME.index.json with
    /// the shards next to it.
    Status open(Notes& notes);
    /// Opens this object's path as far as it can be read, and adds what open() would refuse to `problems`.
    /// Tensors beyond a file's end have no stored(); of an unknown type, `info` alone is valid.
    Status open_damaged(Notes& problems);
    /// Adds a tensor; returns null if its name is taken. The result stays valid.
    StoredTensor* add(StoredTensor tensor);
    /// Adds a tensor of integers that no file stores in this form.
    void add_integers(std::string name, std::vector<std::int64_t> values);
    void add_metadata(std::string key, std::string text) { metadata_.emplace(key, std::move(text)); }
    /// Keeps the files of `from` open, too.
    void share_files(const TensorFile& from) {
        files_.insert(files_.end(), from.files_.begin(), from.files_.end());
    }
    const StoredTensor* find_stored(std::string_view name) const;  ///< null if absent
    StoredTensor* find_stored(std::string_view name);
    /// Returns the type of most values; null without tensors.
    const TensorType* dominant_type() const;

    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override;
    std::vector<std::string> names() const override;
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override;
    bool read_int4_row(const TensorInfo& tensor, std::int64_t row,
                       const kernels::Int4Row& out) const override;
    std::optional<kernels::RandomValues> random_values(const TensorInfo& tensor) const override;
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override;
    std::string metadata(std::string_view key) const override;
    std::vector<const MappedFile*> files() const override;
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override;
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    Status open_shards(Notes* problems = nullptr);
    static const std::uint8_t* row_of(const StoredTensor& tensor, std::int64_t row);

    std::string path_;
    std::vector<std::shared_ptr<const MappedFile>> files_;
    std::unordered_map<std::string, StoredTensor, Hash, std::equal_to<>> tensors_;  ///< searched once a row
    std::vector<std::vector<std::int64_t>> integers_;                               ///< of add_integers()
    std::map<std::string, std::string, std::less<>> metadata_;
};

/// Opens a PyTorch checkpoint (.bin, .pt): the tensors of a saved state dict, memory-mapped. Its pickle is
/// read as data; everything except tensors, numbers, text and their containers is refused, and no code of the
/// file is run. A saved list of numbers becomes the tensor `ids`.
Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path);

/// Opens a safetensors file or a PyTorch checkpoint, chosen by its first bytes.
Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path);

/// Readers of the formats: add the tensors of the file that `out` was made with. A tolerant one keeps what it
/// can, as open_damaged() says.
Status read_safetensors(TensorFile& out, bool tolerant = false);
Status read_torch_file(TensorFile& out);

/// Returns the path of the first file of `names` in the folder, else of the first index, else "".
std::string find_tensor_file(const std::string& folder, std::span<const std::string_view> names);

}  // namespace draftscope
