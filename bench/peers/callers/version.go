package callers

import "runtime/debug"

// Version is that of a module that this program was built with.
func Version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path && len(module.Version) > 0 {
			return module.Version[1:]
		}
	}
	return "unknown"
}
