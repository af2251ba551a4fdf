#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace draftscope::testing {

/// Builds small GGUF files for tests, valid ones and, through `bytes`, invalid ones.
class GgufWriter {
  public:
    void add(const std::string& key, std::uint32_t value);
    void add(const std::string& key, float value);
    void add(const std::string& key, bool value);
    void add(const std::string& key, const std::string& value);
    void add(const std::string& key, const std::vector<std::string>& values);
    void add(const std::string& key, const std::vector<std::int32_t>& values);
    void add(const std::string& key, const std::vector<float>& values);
    /// Adds a key with its `type` and `value` as they are in the file.
    void add_raw(const std::string& key, std::uint32_t type, const std::string& value);
    /// `shape` slowest first; `data` is padded to the alignment.
    void remove(const std::string& key);
    void add_tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type,
                    std::string data);
    void remove_tensor(const std::string& name);
    /// Changes the tensor's header, not its data.
    void change_tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type);

    std::string bytes() const;
    Status write(const std::string& path) const;

  private:
    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;
        std::uint32_t type;
        std::string data;
    };
    struct Value {
        std::string key;
        std::string raw;  ///< bytes of type and value
    };
    std::vector<Value> values_;
    std::vector<Tensor> tensors_;
};

/// Returns the bytes of a number as in a file.
template <typename T>
std::string raw_bytes(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

Status write_file(const std::string& path, const std::string& bytes);

}  // namespace draftscope::testing
