#pragma once

class QWidget;

namespace pw::gui {

/// Lets the main part of a panel, which scrolls itself, take the height that is left beside the others, down to so many lines of text.
/// Without this a scroll area around the panel gives the part the height that it would like to have, once one of the others wraps (Qt asks
/// for the height at a width, which knows no minimum), and there are two scroll bars.
void takeHeightLeft(QWidget& body, int lines = 4);

}  // namespace pw::gui
