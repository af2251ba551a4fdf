#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace draftscope {

/// A hash map from tensor names to entries of a model file, searched once per row read.
template <typename T>
class TensorIndex {
  public:
    bool add(std::string name, T value) { return entries_.emplace(std::move(name), std::move(value)).second; }
    const T* find(std::string_view name) const {
        const auto found = entries_.find(name);
        return found == entries_.end() ? nullptr : &found->second;
    }
    std::vector<std::string> names() const {
        std::vector<std::string> out;
        out.reserve(entries_.size());
        for (const auto& [name, value] : entries_) out.push_back(name);
        std::sort(out.begin(), out.end());
        return out;
    }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    std::unordered_map<std::string, T, Hash, std::equal_to<>> entries_;
};

}  // namespace draftscope
