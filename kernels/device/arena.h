#pragma once

#include <cstddef>
#include <functional>
#include <map>

namespace draftscope::kernels {

/// Memory of a device handed out from large pieces, so that a buffer that grows in the middle of a round asks
/// neither the driver for memory nor everything under way to end. Knows addresses alone. What is released may
/// be handed out again at once: its users are ordered by the queue that they run on.
class Arena {
  public:
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t piece_bytes = std::size_t{64} << 20;
    /// Requests from this size on get a piece of their own, which goes back with them.
    static constexpr std::size_t own_piece_bytes = std::size_t{16} << 20;

    /// `take` may return null; what it gives is aligned.
    Arena(std::function<void*(std::size_t)> take, std::function<void(void*)> give);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Null when there is no memory left.
    void* allocate(std::size_t bytes);
    /// Of something that allocate() gave.
    void release(void* data);
    std::size_t used() const { return used_; }  ///< handed out
    std::size_t held() const { return held_; }  ///< taken
    int pieces() const { return static_cast<int>(pieces_.size()); }

  private:
    struct Piece {
        std::size_t bytes = 0;
        bool own = false;  ///< of one request
        std::size_t used = 0;
    };
    std::byte* take_piece(std::size_t bytes, bool own);
    std::map<std::byte*, Piece>::iterator piece_of(std::byte* data);

    std::function<void*(std::size_t)> take_;
    std::function<void(void*)> give_;
    std::map<std::byte*, Piece> pieces_;
    std::map<std::byte*, std::size_t> free_, given_;
    std::size_t used_ = 0, held_ = 0;
};

}  // namespace draftscope::kernels
