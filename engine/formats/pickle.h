#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace draftscope::pickle {

/// A view of a storage.
struct Tensor {
    std::string_view storage;  ///< key of the storage
    std::string_view type;     ///< element type under safetensors' name
    std::int64_t offset = 0;   ///< in elements, from the start of the storage
    std::vector<std::int64_t> shape, strides;
};
using TensorPtr = std::shared_ptr<const Tensor>;
struct Storage {
    std::string_view key, type;
};
struct Callable;
struct Group;

/// None is the empty alternative. Texts refer to the pickle's bytes, so that copies are small.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string_view, const Callable*,
                           Storage, TensorPtr, Group*>;

struct Group {
    enum class Kind { tuple, list, dictionary };
    Kind kind;
    std::vector<Value> items;  ///< key, value, key, ... of a dictionary
};

/// Returns the group of a value; null for other values and kinds.
const Group* as_group(const Value& value, Group::Kind kind);

/// The values of a pickle: plain data and the tensors of a state dict.
struct Document {
    std::deque<Group> groups;  ///< all groups; values refer to them, so cycles are possible
    Value root;
};

/// Reads a pickle as data. Nothing is executed: only callables that rebuild tensors and ordered dictionaries
/// are accepted; they are recognised by name, not called. `bytes` outlive the document; `path` is used in
/// messages.
Result<Document> read(std::span<const std::uint8_t> bytes, const std::string& path);

}  // namespace draftscope::pickle
