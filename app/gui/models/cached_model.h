#pragma once

#include <optional>
#include <utility>

namespace draftscope {

/// A model that is built again only when what it depends on has changed.
template <typename Model, typename Key>
class CachedModel {
  public:
    /// Returns the model of `key`, from `build()` if the key is another than that of the last call.
    template <typename Build>
    const Model& get(Key key, Build&& build) {
        if (key_ != key) {
            model_ = build();
            key_ = std::move(key);
        }
        return model_;
    }

  private:
    std::optional<Key> key_;
    Model model_;
};

}  // namespace draftscope
