#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A pickle read as plain data and the tensors of a state dict. Nothing is executed. Only callables that
/// rebuild tensors and ordered dictionaries are accepted; they are recognised by name, not called.
class Pickle {
  public:
    using Index = std::size_t;  ///< index into the values
    struct Tensor {
        std::string storage;      ///< key of the storage
        std::string_view type;    ///< element type under safetensors' name
        std::int64_t offset = 0;  ///< in elements, from the start of the storage
        std::vector<std::int64_t> shape, strides;
    };
    enum class Kind {
        none,
        boolean,
        integer,
        real,
        text,
        tuple,
        list,
        dictionary,
        callable,
        storage,
        tensor
    };
    struct Value {
        Kind kind = Kind::none;
        std::int64_t integer = 0;  ///< booleans too
        std::string text;          ///< text; "module name" of callables; key of storages
        std::string_view type;     ///< element type of storages
        std::vector<Index> items;  ///< items of tuples and lists; key, value, key, ... of dictionaries
        Tensor tensor;
    };

    /// `path` is used in messages.
    static Result<Pickle> read(std::span<const std::uint8_t> bytes, const std::string& path);

    const Value& root() const { return values_[root_]; }
    Index root_index() const { return root_; }
    const Value& at(Index index) const { return values_[index]; }

  private:
    class Machine;
    std::deque<Value> values_;  ///< all values; Index refers to them, so cycles are possible
    Index root_ = 0;
};

}  // namespace draftscope
