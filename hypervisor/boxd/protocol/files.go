package protocol

// Query parameters and headers of PathFiles.
const (
	ParamPath       = "path"
	ParamDest       = "dest"
	ParamMaxBytes   = "maxBytes"
	ParamMaxEntries = "maxEntries"
	ParamHeartbeat  = "heartbeatMs"
	ParamPort       = "port"

	HeaderKind = "Psbx-Kind" // KindFile or KindDir
	HeaderName = "Psbx-Name" // last element of the path, percent-encoded
	HeaderSize = "Psbx-Size" // bytes of a file; absent for a directory
	HeaderMode = "Psbx-Mode" // octal permission bits

	// TrailerResult carries a GetResult. Without it a download is cut, whatever arrived.
	TrailerResult = "Psbx-Result"
)

// Kinds of a download.
const (
	KindFile = "file" // raw bytes
	KindDir  = "dir"  // tar.gz with the directory as its top entry
)

// PutLimits bound one intake, counted on unpacked bytes; 0 means boxd's default.
type PutLimits struct {
	MaxBytes   int64
	MaxEntries int64
}

// PutResult is the last frame of an intake.
type PutResult struct {
	Files   int64 `json:"files"`   // files, links and directories written
	Bytes   int64 `json:"bytes"`   // of file content
	Entries int64 `json:"entries"` // read from the archive
}

// GetResult ends a download.
type GetResult struct {
	Error *Error `json:"error,omitempty"`
	// Changed names files of an archive (at most ten) that vanished or shrank while they
	// were read; what was missing of the latter is zeros.
	Changed []string `json:"changed,omitempty"`
	// Skipped names pipes, sockets and devices (at most ten) that were left out.
	Skipped []string `json:"skipped,omitempty"`
}
