// Package clip keeps the beginning and the end of a stream that is too long to keep
// whole, and knows exactly which bytes those are.
package clip

// Clip splits a stream into a head, handed back as it comes, and a tail, held until the
// end is known. With a limit of n the head is the first n/2 bytes and the tail the last
// n - n/2; a stream of n bytes or fewer is kept whole. The zero limit keeps everything.
type Clip struct {
	limit int64
	seen  int64  // bytes of the stream so far, skipped ones included
	head  int64  // bytes handed back
	ring  []byte // the last bytes after the head, oldest at pos
	pos   int
	open  bool // nothing was left out between the head and the next byte
}

// New keeps at most limit bytes; 0 means all.
func New(limit int64) *Clip { return &Clip{limit: limit, open: true} }

// Seen is the number of bytes of the stream so far.
func (c *Clip) Seen() int64 { return c.seen }

// Head is the number of bytes handed back by Write.
func (c *Clip) Head() int64 { return c.head }

// Write takes the next bytes and returns those that belong to the head. It keeps a copy
// of the others, never p itself.
func (c *Clip) Write(p []byte) []byte {
	c.seen += int64(len(p))
	var pass []byte
	if c.open && len(c.ring) == 0 {
		n := int64(len(p))
		if c.limit > 0 {
			n = min(n, c.limit/2-c.head)
		}
		pass, p = p[:n], p[n:]
		c.head += n
	}
	c.hold(p)
	return pass
}

// Skip says that the next n bytes of the stream were left out by whoever sends it.
// What the ring holds is no longer the end of the stream.
func (c *Clip) Skip(n int64) {
	if n <= 0 {
		return
	}
	c.seen += n
	c.open = false
	c.ring, c.pos = c.ring[:0], 0
}

// hold puts p into the ring, dropping the oldest bytes beyond its size.
func (c *Clip) hold(p []byte) {
	size := c.size()
	if size > 0 && len(p) > size {
		p = p[len(p)-size:]
	}
	if n := len(c.ring); size == 0 || n < size {
		k := len(p)
		if size > 0 {
			k = min(k, size-n)
		}
		c.ring = append(c.ring, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		n := copy(c.ring[c.pos:], p)
		c.pos = (c.pos + n) % len(c.ring)
		p = p[n:]
	}
}

// size is how many bytes the tail may have; 0 means any number.
func (c *Clip) size() int {
	if c.limit == 0 {
		return 0
	}
	return int(c.limit - c.limit/2)
}

// Tail returns the bytes held and the offset of the first of them. Everything between
// Head and that offset was left out.
func (c *Clip) Tail() ([]byte, int64) {
	t := make([]byte, 0, len(c.ring))
	t = append(t, c.ring[c.pos:]...)
	t = append(t, c.ring[:c.pos]...)
	return t, c.seen - int64(len(t))
}

// Kept is the number of bytes that survive: head and tail.
func (c *Clip) Kept() int64 { return c.head + int64(len(c.ring)) }
