#pragma once

#include <optional>
#include <vector>

/// Placement of plot labels without overlaps.
namespace draftscope {

struct LabelBox {
    float left = 0, top = 0, right = 0, bottom = 0;

    bool overlaps(const LabelBox& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
    bool inside(const LabelBox& frame) const {
        return left >= frame.left && top >= frame.top && right <= frame.right && bottom <= frame.bottom;
    }
};

/// Keeps the occupied boxes inside a frame.
class LabelPlacer {
  public:
    explicit LabelPlacer(LabelBox frame) : frame_(frame) {}

    void take(LabelBox box) { taken_.push_back(box); }
    /// Occupies and returns the first candidate that is free and inside the frame, if any.
    std::optional<LabelBox> place(const std::vector<LabelBox>& candidates) {
        for (const LabelBox& box : candidates)
            if (box.inside(frame_) && is_free(box)) {
                take(box);
                return box;
            }
        return std::nullopt;
    }

    /// Like place(), but falls back to the first candidate inside the frame.
    std::optional<LabelBox> place_always(const std::vector<LabelBox>& candidates) {
        if (const auto box = place(candidates)) return box;
        for (const LabelBox& box : candidates)
            if (box.inside(frame_)) {
                take(box);
                return box;
            }
        return std::nullopt;
    }

  private:
    bool is_free(const LabelBox& box) const {
        for (const LabelBox& other : taken_)
            if (box.overlaps(other)) return false;
        return true;
    }

    LabelBox frame_;
    std::vector<LabelBox> taken_;
};

/// Returns candidate boxes around a mark of radius `gap`: upper right first, then the other corners and
/// sides.
std::vector<LabelBox> boxes_around(float x, float y, float gap, float width, float height);

}  // namespace draftscope
