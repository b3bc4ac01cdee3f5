// What happens to databases, extensions and maps while workers are about.
#pragma once

namespace baton {

void install_lifecycle_hooks();

}  // namespace baton
