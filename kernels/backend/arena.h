#pragma once

#include <cstddef>
#include <functional>
#include <map>

namespace draftscope::kernels {

/// Suballocates device memory from large pieces, so that small buffers grow without a driver call. A driver
/// call could wait for all pending work. The arena works on addresses only. Released memory
/// may be allocated again at once, because the queue orders its users.
class Arena {
  public:
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t piece_bytes = std::size_t{64} << 20;
    /// Requests of at least this size get a piece of their own, which is freed with them.
    static constexpr std::size_t own_piece_bytes = std::size_t{16} << 20;

    /// `take` returns aligned memory or null; `free_piece` frees it.
    Arena(std::function<void*(std::size_t)> take, std::function<void(void*)> free_piece);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Returns aligned memory, or null if memory runs out.
    void* allocate(std::size_t bytes);
    /// Frees memory from allocate().
    void release(void* data);
    std::size_t used() const { return used_; }  ///< bytes allocated
    std::size_t held() const { return held_; }  ///< bytes of all pieces
    int pieces() const { return static_cast<int>(pieces_.size()); }

  private:
    struct Piece {
        std::size_t bytes = 0;
        bool dedicated = false;  ///< holds a single request
        std::size_t used = 0;
    };
    std::byte* take_piece(std::size_t bytes, bool dedicated);
    std::map<std::byte*, Piece>::iterator piece_of(std::byte* data);

    std::function<void*(std::size_t)> take_;
    std::function<void(void*)> free_piece_;
    std::map<std::byte*, Piece> pieces_;
    std::map<std::byte*, std::size_t> free_, given_;
    std::size_t used_ = 0, held_ = 0;
};

}  // namespace draftscope::kernels
