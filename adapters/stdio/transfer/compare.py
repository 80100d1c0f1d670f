"""Finds out which entries of a manifest differ from what is under a directory of the box.

Usage: compare.py MANIFEST DEST. The manifest is a sequence of NUL-terminated records "KIND DIGEST PATH": KIND is
x (executable file), f (other file), l (symbolic link) or d (directory); DIGEST the SHA-256 of the content, or of the
link's target, in hex. Prints one line of JSON: n is the number of records, differs a zlib-compressed bitmap in base64,
bit i (lowest first) set where record i differs. Removes its own directory.
"""
import base64, hashlib, json, os, shutil, stat, sys, zlib
from concurrent.futures import ThreadPoolExecutor


def same(kind, digest, path):
    try:
        st = os.lstat(path)
        if stat.S_ISLNK(st.st_mode):
            return kind == b"l" and hashlib.sha256(os.readlink(path)).hexdigest().encode() == digest
        if stat.S_ISDIR(st.st_mode):
            return kind == b"d"
        if not stat.S_ISREG(st.st_mode) or kind != (b"x" if st.st_mode & 0o111 else b"f"):
            return False
        h = hashlib.sha256()
        with open(path, "rb") as f:
            while chunk := f.read(1 << 20):
                h.update(chunk)
        return h.hexdigest().encode() == digest
    except OSError:
        return False


def real(directory, root, known):
    """A file that is reached through a link is not the file that the sender means."""
    if directory == root or directory in known:
        return known.get(directory, True)
    known[directory] = not os.path.islink(directory) and real(os.path.dirname(directory), root, known)
    return known[directory]


def main():
    manifest, root = os.fsencode(sys.argv[1]), os.path.normpath(os.fsencode(sys.argv[2]))
    with open(manifest, "rb") as f:
        records = [r.split(b" ", 2) for r in f.read().split(b"\0")[:-1]]
    known = {}
    jobs = []
    for kind, digest, name in records:
        path = os.path.join(root, name)
        jobs.append((kind, digest, path) if real(os.path.dirname(path), root, known) else None)
    bitmap = bytearray((len(jobs) + 7) // 8)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for i, equal in enumerate(pool.map(lambda job: job is not None and same(*job), jobs)):
            if not equal:
                bitmap[i // 8] |= 1 << i % 8
    shutil.rmtree(os.path.dirname(os.path.abspath(manifest)), ignore_errors=True)
    print(json.dumps({"n": len(jobs), "differs": base64.b64encode(zlib.compress(bytes(bitmap), 9)).decode()}))


main()
