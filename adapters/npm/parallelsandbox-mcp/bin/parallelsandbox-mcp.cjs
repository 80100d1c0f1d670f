#!/usr/bin/env node
// Starts the native program that came in the optional package for this platform, and gets out of its way:
// the program has our stdin, stdout and stderr, our signals go to it, its exit code becomes ours.
"use strict";

const { spawn } = require("node:child_process");
const { chmodSync } = require("node:fs");
const { dirname, join } = require("node:path");
const { version } = require("../package.json");

const platform = `${process.platform}-${process.arch}`;
const carrier = `@parallelsandbox/mcp-${platform}`;

function fail(message) {
  process.stderr.write(`parallelsandbox-mcp: ${message}\n`);
  process.exit(1);
}

function findProgram() {
  const name = process.platform === "win32" ? "parallelsandbox-mcp.exe" : "parallelsandbox-mcp";
  try {
    return join(dirname(require.resolve(`${carrier}/package.json`)), "bin", name);
  } catch {
    const { optionalDependencies = {} } = require("../package.json");
    if (!(carrier in optionalDependencies)) {
      const known = Object.keys(optionalDependencies).map((p) => p.replace("@parallelsandbox/mcp-", ""));
      return fail(`there is no build for ${platform}, only for ${known.join(", ")}.`);
    }
    return fail(
      `the package ${carrier} that carries the program for this platform is not installed.\n` +
        `This happens when optional packages are left out (--omit=optional, --no-optional) or node_modules was ` +
        `made on another platform.\nInstall again without that, or add it by hand: npm install ${carrier}@${version}`,
    );
  }
}

function start(program, mayMend) {
  const child = spawn(program, process.argv.slice(2), { stdio: "inherit", windowsHide: true });
  const forward = (signal) => child.kill(signal);
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, forward);
  const letGo = () => signals.forEach((signal) => process.off(signal, forward));

  child.on("error", (error) => {
    letGo();
    if (error.code === "EACCES" && mayMend) {
      // Some installers drop the bit that makes a file executable.
      try {
        chmodSync(program, 0o755);
      } catch (reason) {
        return fail(`${program} is not executable and cannot be made so: ${reason.message}`);
      }
      return start(program, false);
    }
    fail(`${program} does not start: ${error.message}`);
  });
  child.on("exit", (code, signal) => {
    letGo();
    if (signal) {
      // Whoever started us sees the same end that the program had.
      process.kill(process.pid, signal);
      return;
    }
    process.exit(code);
  });
}

start(findProgram(), true);
