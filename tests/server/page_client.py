"""The page at `/` in a headless Chromium: PORT of a server with the model of scripted_server.h. Exits
with 77 where playwright or a browser is absent."""

import re
import shutil
import sys
import time

try:
    from playwright.sync_api import Error, expect, sync_playwright
except ImportError as error:
    print(error)
    sys.exit(77)

URL = f"http://127.0.0.1:{sys.argv[1]}/"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def say(page, text, count):
    """Sends a text and waits for the answer, which is bubble number `count`."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    expect(page.locator("#messages li")).to_have_count(count)
    expect(page.locator("#send")).to_be_enabled()
    return page.locator("#messages li").last


def check(page):
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: line.type == "error" and faults.append(line.text))
    page.goto(URL)
    expect(page.locator("#model")).to_have_text("tiny")
    answer = say(page, "@think", 2)
    expect(answer.locator("details")).to_contain_text("long thought")
    assert answer.evaluate("item => item.lastChild.data") == "The answer"
    # Text of a model is no markup.
    answer = say(page, "<b id=bold>@call", 4)
    expect(answer).to_contain_text("<tool_call>")
    assert page.locator("#bold").count() == 0
    expect(page.locator("#waiting")).to_have_text("0")
    expect(page.locator("#generated")).to_have_text(re.compile(r"^\d+\.\d$"))
    expect(page.locator("#pages")).to_contain_text("pages")
    page.click("#lanes summary")
    deadline = time.monotonic() + 30
    while page.locator("#picture").evaluate("image => image.naturalWidth") <= 100:
        assert time.monotonic() < deadline, page.inner_text("#nolanes")
        time.sleep(0.05)
    assert faults == [], faults
    # A conversation longer than the context gets the server's error, and the next one is answered.
    expect(say(page, "x" * 2000, 6)).to_have_class("error")
    page.click("#new")
    expect(page.locator("#messages li")).to_have_count(0)
    expect(say(page, "@end", 2)).to_contain_text("STOP here")


if __name__ == "__main__":
    with sync_playwright() as driver:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        try:
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except Error as error:
            print(str(error).splitlines()[0])
            sys.exit(77)
        browser_page = browser.new_page()
        browser_page.set_default_timeout(30000)
        expect.set_options(timeout=30000)
        check(browser_page)
        browser.close()
