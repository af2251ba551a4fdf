#pragma once

#include <string>

#include "app/gui/panels/panel.h"

namespace draftscope {

/// Requests the other of Compare's two runs, at the selected round's place in the text. Returns why it has no
/// such place; "" = the next frame shows it.
std::string show_other_run(PanelContext& context);

}  // namespace draftscope
