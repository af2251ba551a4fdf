#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/folder_list.h"
#include "app/gui/panels/style.h"

namespace draftscope {

/// Dialog that chooses a file from a list or by typing. request() opens it; draw() returns the result once.
class PathDialog {
  public:
    PathDialog(std::string title, std::string verb, bool must_exist)
        : title_(std::move(title)), verb_(std::move(verb)), must_exist_(must_exist) {}

    /// Opens the dialog. `folder`: initial folder; if "" or missing, the current folder.
    /// `folders`: a folder may be chosen, too.
    void request(const std::string& suggested, const std::string& folder, bool folders = false);
    bool is_open() const { return open_; }
    /// Call in every frame. Returns the chosen absolute path in the frame in which it is confirmed.
    std::optional<std::string> draw(const Style& style, const std::vector<std::string>& endings);

  private:
    void enter(const std::string& folder);
    void draw_list(const Style& style, bool* confirmed);
    std::optional<std::string> confirm();

    std::string title_, verb_;
    bool must_exist_;
    bool folders_ = false;
    bool requested_ = false, open_ = false, stale_ = true, focus_ = false;
    std::string folder_, name_, problem_;
    std::string to_replace_;  ///< existing file, replaced if confirmed again
    std::vector<FolderEntry> entries_;
};

}  // namespace draftscope
