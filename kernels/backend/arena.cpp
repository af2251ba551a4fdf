#include "kernels/backend/arena.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace draftscope::kernels {

Arena::Arena(std::function<void*(std::size_t)> take, std::function<void(void*)> free_piece)
    : take_(std::move(take)), free_piece_(std::move(free_piece)) {}

Arena::~Arena() {
    for (const auto& [data, piece] : pieces_) free_piece_(data);
}

std::byte* Arena::take_piece(std::size_t bytes, bool dedicated) {
    auto* data = static_cast<std::byte*>(take_(bytes));
    if (data == nullptr) return nullptr;
    pieces_[data] = {bytes, dedicated, 0};
    free_[data] = bytes;
    held_ += bytes;
    return data;
}

std::map<std::byte*, Arena::Piece>::iterator Arena::piece_of(std::byte* data) {
    return std::prev(pieces_.upper_bound(data));
}

void* Arena::allocate(std::size_t bytes) {
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    const bool dedicated = rounded >= own_piece_bytes;
    // Best fit.
    auto best = free_.end();
    if (!dedicated)
        for (auto it = free_.begin(); it != free_.end(); ++it)
            if (it->second >= rounded && (best == free_.end() || it->second < best->second)) best = it;
    if (best == free_.end()) {
        std::byte* piece = dedicated ? nullptr : take_piece(piece_bytes, false);
        // The device may lack memory for a whole piece, but have enough for this request.
        if (piece == nullptr) piece = take_piece(rounded, true);
        if (piece == nullptr) return nullptr;
        best = free_.find(piece);
    }
    std::byte* const data = best->first;
    const std::size_t left = best->second - rounded;
    free_.erase(best);
    if (left > 0) free_[data + rounded] = left;
    given_[data] = rounded;
    piece_of(data)->second.used += rounded;
    used_ += rounded;
    return data;
}

void Arena::release(void* address) {
    auto* data = static_cast<std::byte*>(address);
    const auto given = given_.find(data);
    assert(given != given_.end());
    std::size_t bytes = given->second;
    given_.erase(given);
    used_ -= bytes;
    const auto piece = piece_of(data);
    std::byte* const begin = piece->first;
    std::byte* const end = begin + piece->second.bytes;
    piece->second.used -= bytes;
    // Merges adjacent gaps of the same piece.
    if (const auto after = free_.find(data + bytes); after != free_.end() && after->first < end) {
        bytes += after->second;
        free_.erase(after);
    }
    auto at = free_.lower_bound(data);
    if (at != free_.begin()) {
        const auto before = std::prev(at);
        if (before->first >= begin && before->first + before->second == data) {
            data = before->first;
            bytes += before->second;
        }
    }
    free_[data] = bytes;
    if (!piece->second.dedicated) return;
    free_.erase(data);
    held_ -= piece->second.bytes;
    pieces_.erase(piece);
    free_piece_(begin);
}

}  // namespace draftscope::kernels
