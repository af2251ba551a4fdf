#include "app/gui/models/label_placer.h"

#include <utility>

namespace draftscope {

std::vector<LabelBox> boxes_around(float x, float y, float gap, float width, float height) {
    const float right = x + gap, left = x - gap - width, above = y - gap - height, below = y + gap;
    std::vector<LabelBox> places;
    for (const auto& [at_x, at_y] : {std::pair{right, above},
                                     {right, y - height / 2},
                                     {left, above},
                                     {left, y - height / 2},
                                     {right, below},
                                     {left, below},
                                     {x - width / 2, above},
                                     {x - width / 2, below},
                                     {right, above - height},
                                     {left, above - height},
                                     {right, below + height},
                                     {left, below + height}})
        places.push_back({at_x, at_y, at_x + width, at_y + height});
    return places;
}

}  // namespace draftscope
